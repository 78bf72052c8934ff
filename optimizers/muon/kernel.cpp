#include "optimizers/muon/kernel.h"

#include <gannet/sdk_elementwise.hpp>

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {
#include "optimizers/adam/rule.h"
#include "optimizers/muon/rule.h"

template <class T>
void direction_as(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (step.nesterov) return run_elementwise(MuonDirectionRule<T, true>{muon_numbers<T>(step)}, args, begin, end);
  run_elementwise(MuonDirectionRule<T, false>{muon_numbers<T>(step)}, args, begin, end);
}
void muon_direction(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return direction_as<double>(step, args, begin, end);
  direction_as<float>(step, args, begin, end);
}

void muon_apply(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64)
    return run_elementwise(MuonApplyRule<double>{muon_numbers<double>(step)}, args, begin, end);
  run_elementwise(MuonApplyRule<float>{muon_numbers<float>(step)}, args, begin, end);
}

void adam(const AdamStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return run_elementwise(AdamRule<double>(step), args, begin, end);
  run_elementwise(AdamRule<float>(step), args, begin, end);
}

// Element i is always added to sum i % 16, whatever the vector width. Squares of fp32 numbers are
// exact in double.
double squares(const float* x, uint64_t count) {
  using Wide = hn::CappedTag<double, 8>;
  const hn::Rebind<float, Wide> narrow;
  constexpr size_t kSums = 16, kWidth = hn::MaxLanes(Wide()), kVectors = kSums / kWidth;
  hn::Vec<Wide> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(Wide());
  uint64_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (size_t v = 0; v < kVectors; ++v) {
      const auto wide = hn::PromoteTo(Wide(), hn::LoadU(narrow, x + i + v * kWidth));
      sums[v] = hn::MulAdd(wide, wide, sums[v]);
    }
  double lanes[kSums];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], Wide(), lanes + v * kWidth);
  double total = 0;
  for (const double lane : lanes) total += lane;
  for (; i < count; ++i) total += double{x[i]} * double{x[i]};
  return total;
}

void scale(float* x, uint64_t count, float factor) {
  for (uint64_t i = 0; i < count; ++i) x[i] *= factor;
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::rules {

HWY_EXPORT(muon_direction);
HWY_EXPORT(muon_apply);
HWY_EXPORT(adam);
HWY_EXPORT(squares);
HWY_EXPORT(scale);

void muon_direction_cpu(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(muon_direction)(step, args, begin, end);
}
void muon_apply_cpu(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(muon_apply)(step, args, begin, end);
}
void adam_cpu(const AdamStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(adam)(step, args, begin, end);
}
double squares_cpu(const float* x, uint64_t count) { return HWY_DYNAMIC_DISPATCH(squares)(x, count); }
void scale_cpu(float* x, uint64_t count, float factor) { HWY_DYNAMIC_DISPATCH(scale)(x, count, factor); }

}  // namespace gannet::rules
#endif
