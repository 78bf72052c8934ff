// Adam on a whole range, in one CUDA kernel on args.stream. Returns the launch's status.
#pragma once

#include <cuda_runtime_api.h>
#include <gannet/abi.h>

#include "optimizers/adam/step.h"

namespace gannet::optimizers {

cudaError_t adam_cuda(const AdamStep& step, bool torch_order, const gannet_update_args& args);

}  // namespace gannet::optimizers
