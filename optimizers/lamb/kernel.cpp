#include "optimizers/lamb/kernel.h"

#include <gannet/sdk_elementwise.hpp>

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {
#include "optimizers/lamb/rule.h"

void lamb_sums(const LambStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end, double* sums) {
  if (args.param_dtype == GANNET_FLOAT64)
    return sum_elementwise(LambRule<double>{lamb_numbers<double>(step)}, args, begin, end, sums);
  sum_elementwise(LambRule<float>{lamb_numbers<float>(step)}, args, begin, end, sums);
}

template <class T>
void update_as(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  LambRule<T> rule{lamb_numbers<T>(step)};
  rule.minus_rate = static_cast<T>(-rule.step_size * coefficient);
  run_elementwise(rule, args, begin, end);
}

void lamb_update(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return update_as<double>(step, coefficient, args, begin, end);
  update_as<float>(step, coefficient, args, begin, end);
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::rules {

HWY_EXPORT(lamb_sums);
HWY_EXPORT(lamb_update);

void lamb_sums_cpu(const LambStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end, double* sums) {
  HWY_DYNAMIC_DISPATCH(lamb_sums)(step, args, begin, end, sums);
}
void lamb_update_cpu(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  HWY_DYNAMIC_DISPATCH(lamb_update)(step, coefficient, args, begin, end);
}

}  // namespace gannet::rules
#endif
