#include "update/perturbation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace gannet {
namespace {

// Restores this many elements at a time, to bound the temporary memory for arrays on a drive.
constexpr int64_t kKeptStretch = 1 << 22;

}  // namespace

Array& Perturbation::memory_of(const Range& range) {
  const auto& ranges = store_.ranges();
  memory_.resize(ranges.size());
  const auto place = std::find_if(ranges.begin(), ranges.end(), [&](const Range& each) { return &each == &range; });
  Array& memory = memory_[static_cast<size_t>(place - ranges.begin())];
  if (!memory.defined()) memory = store_.make_like_masters(range, "masters, while they are perturbed");
  return memory;
}

void Perturbation::keep(Range& range, const zero::Shard& place, const at::Tensor& values) {
  memory_of(range).set(place.own, values);
  kept_.push_back({&range, place});
}

at::Tensor Perturbation::kept(const Range& range, const zero::Shard& place) {
  const Array& memory = memory_of(range);
  return memory.is_here() ? memory.get(place.own, place.numel) : at::Tensor();
}

void Perturbation::restore() {
  const at::NoGradGuard no_grad;
  for (const KeptShard& kept : kept_)
    for (int64_t done = 0; done < kept.place.numel; done += kKeptStretch) {
      const zero::Shard stretch{kept.place.offset + done, kept.place.own + done, std::min(kKeptStretch, kept.place.numel - done)};
      kept.range->set_master(stretch, memory_of(*kept.range).get(stretch.own, stretch.numel));
    }
  kept_.clear();
}

}  // namespace gannet
