// The element-wise steps of 0/1 Adam's averaging of updates, on the calling thread with the widest
// SIMD of this CPU.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet::rules {

struct ZeroOneAverage {
  double eps;
  double minus_inverse;  // -1 / the sum of the learning rates
};

// For elements [begin, end) of the range in args; d = sqrt(exp_avg_sq) + eps. Computes the values
// to send:
//   exp_avg <- (param - common) d
void zero_one_collect_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end);
// Applies the received average, in exp_avg:
//   param <- common + exp_avg / d;  exp_avg <- exp_avg minus_inverse
void zero_one_apply_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end);
// On a single rank, which sends nothing:
//   exp_avg <- (param - common) d minus_inverse
void zero_one_alone_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
