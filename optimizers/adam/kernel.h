// Adam on elements [begin, end) of the range that args describes, on the calling thread, with the widest SIMD of this CPU.
#pragma once

#include <gannet/abi.h>

#include "optimizers/adam/step.h"

namespace gannet::optimizers {

void adam_cpu(const AdamStep& step, bool torch_order, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::optimizers
