// LAMB's two passes over elements [begin, end) of the range in args, which all belong to one tensor.
// They run on the calling thread with this CPU's widest SIMD.
#pragma once

#include <gannet/abi.h>

#include "optimizers/lamb/step.h"

namespace gannet::rules {

// This pass only reads, and adds the two sums of squares to `sums`. They do not depend on the SIMD
// width, except for rounding on targets without fused multiply-add.
void lamb_sums_cpu(const LambStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end, double* sums);
void lamb_update_cpu(const LambStep& step, double coefficient, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
