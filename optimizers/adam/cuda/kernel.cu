#include "optimizers/adam/cuda/kernel.h"
#include "optimizers/common/elementwise.cuh"

namespace gannet::optimizers {
namespace {

#include "optimizers/adam/rule.h"

template <class T>
cudaError_t adam_as(const AdamStep& step, bool torch_order, const gannet_update_args& args) {
  if (torch_order) return run_elementwise(TorchAdamRule<T>{torch_adam_numbers<T>(step)}, args);
  return run_elementwise(AdamRule<T>{adam_numbers<T>(step)}, args);
}

}  // namespace

cudaError_t adam_cuda(const AdamStep& step, bool torch_order, const gannet_update_args& args) {
  if (args.param_dtype == GANNET_FLOAT64) return adam_as<double>(step, torch_order, args);
  return adam_as<float>(step, torch_order, args);
}

}  // namespace gannet::optimizers
