// Muon's passes over elements [begin, end), on the calling thread with this CPU's widest SIMD.
#pragma once

#include <gannet/abi.h>

#include "optimizers/adam/step.h"
#include "optimizers/muon/step.h"

namespace gannet::rules {

// args.param receives the direction, and args.states[0] is the momentum. Gradients are fp32 or 16-bit,
// or fp64 for fp64 masters.
void muon_direction_cpu(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);
// Updates the tensors that Adam trains, with AdamW's rule.
void adam_cpu(const AdamStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);
// args.grad is the orthogonalized update, in the master's type.
void muon_apply_cpu(const MuonStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

// The sum of squares of x[count], in double. The result does not depend on the SIMD width.
double squares_cpu(const float* x, uint64_t count);
void scale_cpu(float* x, uint64_t count, float factor);

}  // namespace gannet::rules
