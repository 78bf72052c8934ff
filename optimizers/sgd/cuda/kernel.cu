#include "optimizers/common/elementwise.cuh"
#include "optimizers/sgd/cuda/kernel.h"

namespace gannet::optimizers {
namespace {

#include "optimizers/sgd/rule.h"

template <class T>
cudaError_t sgd_as(const SgdStep& step, const gannet_update_args& args) {
  const SgdNumbers<T> numbers = sgd_numbers<T>(step);
  if (!step.has_buffer) return run_elementwise(SgdRule<T>{numbers}, args);
  if (step.nesterov) return run_elementwise(MomentumRule<T, true>{numbers}, args);
  return run_elementwise(MomentumRule<T, false>{numbers}, args);
}

}  // namespace

cudaError_t sgd_cuda(const SgdStep& step, const gannet_update_args& args) {
  if (args.param_dtype == GANNET_FLOAT64) return sgd_as<double>(step, args);
  return sgd_as<float>(step, args);
}

}  // namespace gannet::optimizers
