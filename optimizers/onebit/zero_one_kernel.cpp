#include "optimizers/onebit/zero_one_kernel.h"

#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

enum class ZeroOneStage { kCollect, kApply, kAlone };

// An element without variance had no gradient on any rank, so its value in a compressed average is
// noise. It has moved equally on all ranks (by decay) and keeps its value.
template <ZeroOneStage kStage>
struct ZeroOneRule {
  using Number = float;
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq", "common_param"};
  float eps, minus_inverse;

  explicit ZeroOneRule(const ZeroOneAverage& a)
      : eps(static_cast<float>(a.eps)), minus_inverse(static_cast<float>(a.minus_inverse)) {}

  template <class V>
  GANNET_DEVICE void operator()(V, V& param, V& exp_avg, V& exp_avg_sq, V& common) const {
    const V denominator = sqrt(exp_avg_sq) + V(eps);
    if (kStage != ZeroOneStage::kApply) exp_avg = (param - common) * denominator;
    if (kStage == ZeroOneStage::kApply) param = select(exp_avg_sq > V(0.0f), common + exp_avg / denominator, param);
    if (kStage != ZeroOneStage::kCollect) exp_avg = select(exp_avg_sq > V(0.0f), exp_avg * V(minus_inverse), V(0.0f));
  }
};

void zero_one_collect(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(ZeroOneRule<ZeroOneStage::kCollect>(average), args, begin, end);
}
void zero_one_apply(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(ZeroOneRule<ZeroOneStage::kApply>(average), args, begin, end);
}
void zero_one_alone(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(ZeroOneRule<ZeroOneStage::kAlone>(average), args, begin, end);
}

GANNET_RULES_END

#if GANNET_RULE_IS_LAST
namespace gannet::rules {

HWY_EXPORT(zero_one_collect);
HWY_EXPORT(zero_one_apply);
HWY_EXPORT(zero_one_alone);

void zero_one_collect_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(zero_one_collect)(average, args, begin, end);
}
void zero_one_apply_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(zero_one_apply)(average, args, begin, end);
}
void zero_one_alone_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(zero_one_alone)(average, args, begin, end);
}

}  // namespace gannet::rules
#endif
