#include "optimizers/onebit/adam_kernel.h"

#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN
#include "optimizers/onebit/rule.h"

void onebit_adam_warm_up(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(OneBitAdamRule<OneBitPhase::kWarmUp>(step), args, begin, end);
}
void onebit_adam_frozen(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(OneBitAdamRule<OneBitPhase::kFrozen>(step), args, begin, end);
}
void onebit_adam_averaged(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  run_elementwise(OneBitAdamRule<OneBitPhase::kAveraged>(step), args, begin, end);
}

GANNET_RULES_END

#if GANNET_RULE_IS_LAST
namespace gannet::rules {

HWY_EXPORT(onebit_adam_warm_up);
HWY_EXPORT(onebit_adam_frozen);
HWY_EXPORT(onebit_adam_averaged);

void onebit_adam_warm_up_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(onebit_adam_warm_up)(step, args, begin, end);
}
void onebit_adam_frozen_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(onebit_adam_frozen)(step, args, begin, end);
}
void onebit_adam_averaged_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(onebit_adam_averaged)(step, args, begin, end);
}

}  // namespace gannet::rules
#endif
