// SGD on a whole range, in one CUDA kernel on args.stream. Returns the launch's status.
#pragma once

#include <cuda_runtime_api.h>
#include <gannet/abi.h>

#include "optimizers/sgd/step.h"

namespace gannet::optimizers {

cudaError_t sgd_cuda(const SgdStep& step, const gannet_update_args& args);

}  // namespace gannet::optimizers
