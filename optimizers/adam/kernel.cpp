#include "optimizers/adam/kernel.h"

// The order of these is Highway's.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimizers/adam/kernel.cpp"
#include <hwy/foreach_target.h>

#include "optimizers/common/elementwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace gannet::optimizers::HWY_NAMESPACE {
#include "optimizers/adam/rule.h"

template <class T>
void adam_as(const AdamStep& step, bool torch_order, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (torch_order) return run_elementwise(TorchAdamRule<T>{torch_adam_numbers<T>(step)}, args, begin, end);
  run_elementwise(AdamRule<T>{adam_numbers<T>(step)}, args, begin, end);
}

void adam(const AdamStep& step, bool torch_order, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return adam_as<double>(step, torch_order, args, begin, end);
  adam_as<float>(step, torch_order, args, begin, end);
}

}  // namespace gannet::optimizers::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::optimizers {

HWY_EXPORT(adam);

void adam_cpu(const AdamStep& step, bool torch_order, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(adam)(step, torch_order, args, begin, end);
}

}  // namespace gannet::optimizers
#endif
