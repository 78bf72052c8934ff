// The loops of 1-bit LAMB over elements [begin, end) of the range in args, all of one tensor, on
// the calling thread with the widest SIMD of this CPU. States: exp_avg, exp_avg_sq, worker_error,
// server_error, exp_avg_sq_fresh.
#pragma once

#include <gannet/abi.h>

#include "optimizers/onebit/step.h"

namespace gannet::rules {

// Updates both moments.
OneBitLambNorms onebit_lamb_warm_up_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

// exp_avg <- averaged. Updates exp_avg_sq_fresh with the gradient that explains this change.
OneBitLambRatios onebit_lamb_frozen_cpu(const OneBitStep& step, const gannet_update_args& args, const float* averaged,
                                        uint64_t begin, uint64_t end);

// p <- p - rate (m / (sqrt(v) + eps) + decay p).
void onebit_lamb_apply_cpu(const OneBitStep& step, double rate, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
