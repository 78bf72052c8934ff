#include "update/average.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/lerp.h>

#include <algorithm>

#include "base/parallel.h"

namespace gannet {
namespace {

// Moves this many elements at a time, to bound the temporary memory for arrays on a drive.
constexpr int64_t kAveragedStretch = 1 << 22;
constexpr uint64_t kAveragedGrain = 1 << 15;

template <class T>
void move_on_host(T* average, const T* masters, uint64_t numel, T weight) {
  parallel_for(0, numel, kAveragedGrain, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const T apart = masters[i] - average[i];
      const T by = apart * weight;  // no fused multiply-add, which some x86-64 CPUs lack: each operation rounds separately
      average[i] += by;
    }
  });
}

}  // namespace

double Average::Rule::decay_of(int64_t update) const {
  const int64_t averaged = update - update_after_step;
  if (averaged <= 0) return 0;
  const auto n = static_cast<double>(averaged);
  return warmup ? std::min(decay, (1 + n) / (10 + n)) : decay;
}

void Average::follow_masters() const {
  if (!is_on_ || !is_fresh_) return;
  const at::NoGradGuard no_grad;
  for (const Range& range : store_.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p) store_.restart_average(range, p);
}

void Average::move(const at::Tensor& average, const at::Tensor& masters) const {
  if (weight_ == 1) {
    average.copy_(masters);
  } else if (!average.is_cpu()) {
    average.lerp_(masters, weight_);
  } else if (average.scalar_type() == at::kDouble) {
    move_on_host(average.mutable_data_ptr<double>(), masters.const_data_ptr<double>(), static_cast<uint64_t>(average.numel()),
                 weight_);
  } else {
    move_on_host(average.mutable_data_ptr<float>(), masters.const_data_ptr<float>(), static_cast<uint64_t>(average.numel()),
                 static_cast<float>(weight_));
  }
}

void Average::move_parameters(const Range& range, const std::function<bool(size_t parameter)>& of) const {
  const at::NoGradGuard no_grad;
  for (const zero::TensorPart& part : range.parts) {
    if (!of(part.tensor)) continue;
    for (int64_t done = 0; done < part.numel; done += kAveragedStretch) {
      const zero::Shard place{part.offset + done, part.own + done, std::min(kAveragedStretch, part.numel - done)};
      const at::Tensor average = range.average.get(place.own, place.numel);
      move(average, range.master_of(place).to(average.device()).contiguous());
      if (!range.average.is_here()) range.average.set(place.own, average);
    }
  }
}

void Average::move_all() const {
  for (const Range& range : store_.ranges()) move_parameters(range, [](size_t) { return true; });
}

}  // namespace gannet
