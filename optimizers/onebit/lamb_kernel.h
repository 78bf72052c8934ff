// The loops of 1-bit LAMB over elements [begin, end) of the range in args, which all belong to one
// tensor. They run on the calling thread with this CPU's widest SIMD. The states are exp_avg,
// exp_avg_sq, worker_error, server_error and exp_avg_sq_fresh.
#pragma once

#include <gannet/abi.h>

#include "optimizers/onebit/step.h"

namespace gannet::rules {

// Updates both moments.
OneBitLambNorms onebit_lamb_warm_up_cpu(const OneBitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

// Sets exp_avg <- averaged, and updates exp_avg_sq_fresh with the gradient that would explain this
// change.
OneBitLambRatios onebit_lamb_frozen_cpu(const OneBitStep& step, const gannet_update_args& args, const float* averaged,
                                        uint64_t begin, uint64_t end);

// Computes p <- p - rate (m / (sqrt(v) + eps) + decay p).
void onebit_lamb_apply_cpu(const OneBitStep& step, double rate, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
