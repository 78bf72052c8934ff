// The element-wise part of 1-bit Adam, on the calling thread with this CPU's widest SIMD.
#pragma once

#include <gannet/abi.h>

#include "optimizers/onebit/step.h"

namespace gannet::rules {

// These update elements [begin, end) of the range in args: during the warm-up; after it on a single
// rank; and after it on several ranks, where the momentum is already the average over the ranks.
void onebit_adam_warm_up_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);
void onebit_adam_frozen_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);
void onebit_adam_averaged_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
