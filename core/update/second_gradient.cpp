#include "update/second_gradient.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace gannet {
namespace {

// Copies this many elements at a time, to bound the temporary memory that conversion to the
// masters' dtype needs.
constexpr int64_t kSecondStretch = 1 << 22;

}  // namespace

bool SecondGradient::is_wanted_by(const Group& group, int64_t applied_steps) const {
  return group.optimizer && group.optimizer->wants_second_gradient(static_cast<uint64_t>(applied_steps - group.lag) + 1);
}

bool SecondGradient::is_wanted(int64_t applied_steps) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) { return is_wanted_by(group, applied_steps); });
}

void SecondGradient::keep(double factor, int64_t applied_steps) {
  const at::NoGradGuard no_grad;
  for (const Range& range : store_.ranges()) {
    if (!is_wanted_by(groups_[range.group], applied_steps)) continue;
    Array values = store_.make_like_masters(range, "the second gradient");
    values.fill(0);  // including the gaps between tensors
    for (const zero::TensorPart& part : range.parts) {
      if (part.numel == 0) continue;
      const at::Tensor gradient = range.grad_of(part);
      for (int64_t done = 0; done < part.numel; done += kSecondStretch) {
        const at::Tensor stretch = gradient.narrow(0, done, std::min(kSecondStretch, part.numel - done));
        const at::ScalarType wide = range.master_dtype == at::kBFloat16 ? at::kFloat : range.master_dtype;
        values.set(part.own + done, stretch.to(wide, /*non_blocking=*/false, /*copy=*/true).mul_(factor).to(range.master_dtype));
      }
    }
    kept_.push_back({&range, std::move(values)});
  }
}

const Array* SecondGradient::of(const Range& range) const {
  for (const KeptGradient& kept : kept_)
    if (kept.range == &range) return &kept.values;
  return nullptr;
}

}  // namespace gannet
