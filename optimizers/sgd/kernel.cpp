#include "optimizers/sgd/kernel.h"

// The order of these is Highway's.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimizers/sgd/kernel.cpp"
#include <hwy/foreach_target.h>

#include "optimizers/common/elementwise-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace gannet::optimizers::HWY_NAMESPACE {
#include "optimizers/sgd/rule.h"

template <class T>
void sgd_as(const SgdStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  const SgdNumbers<T> numbers = sgd_numbers<T>(step);
  if (!step.has_buffer) return run_elementwise(SgdRule<T>{numbers}, args, begin, end);
  if (step.nesterov) return run_elementwise(MomentumRule<T, true>{numbers}, args, begin, end);
  run_elementwise(MomentumRule<T, false>{numbers}, args, begin, end);
}

void sgd(const SgdStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return sgd_as<double>(step, args, begin, end);
  sgd_as<float>(step, args, begin, end);
}

}  // namespace gannet::optimizers::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::optimizers {

HWY_EXPORT(sgd);

void sgd_cpu(const SgdStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(sgd)(step, args, begin, end);
}

}  // namespace gannet::optimizers
#endif
