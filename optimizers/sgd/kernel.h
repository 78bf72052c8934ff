// SGD on elements [begin, end) of the range that args describes, on the calling thread, with the widest SIMD of this CPU.
#pragma once

#include <gannet/abi.h>

#include "optimizers/sgd/step.h"

namespace gannet::optimizers {

void sgd_cpu(const SgdStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::optimizers
