// The element-wise steps of 0/1 Adam's averaging of updates, on the calling thread with this CPU's
// widest SIMD.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet::rules {

struct ZeroOneAverage {
  double eps;
  double minus_inverse;  // -1 divided by the sum of the learning rates; 0 if that sum is 0
};

// These work on elements [begin, end) of the range in args, with d = sqrt(exp_avg_sq) + eps. The
// first computes the values to send:
//   exp_avg <- (param - common) d
void zero_one_collect_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end);
// Applies the received average, which is in exp_avg. Where exp_avg_sq is 0, param stays and exp_avg becomes 0.
//   param <- common + exp_avg / d;  exp_avg <- exp_avg minus_inverse
void zero_one_apply_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end);
// The update on a single rank, which sends nothing:
//   exp_avg <- (param - common) d minus_inverse
void zero_one_alone_cpu(const ZeroOneAverage& average, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
