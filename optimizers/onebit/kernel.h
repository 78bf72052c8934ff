// The loops of a compressed average, which run on the calling thread with this CPU's widest SIMD.
// Each processes elements of one tensor, whose bits begin on a byte boundary: 8 signs per byte,
// lowest bit first, 1 for +. The sign of zero is +.
#pragma once

#include <gannet/abi.h>

#include <cstdint>

namespace gannet::rules {

// The inputs of the momentum that a rank sends: its momentum before the step and the step's gradient.
struct MomentumInputs {
  const float* momentum;
  const void* gradient;
  uint32_t gradient_dtype;  // fp32, bf16 or fp16
  float beta, one_minus_beta;
  float gradient_scale;
};

// Computes error[i] <- beta momentum[i] + (1 - beta) gradient_scale gradient[i] + error[i] for [begin, end).
// Returns the sum of the squares of the result in double. The sum does not depend on the SIMD
// width, except for rounding on targets without fused multiply-add.
double add_error_cpu(const MomentumInputs& from, float* error, uint64_t begin, uint64_t end);

// Stores the signs of values[count] in `bits`, and leaves the compression error in values: values
// <- values - scale * sign. Writes the bits of whole groups of 16 elements; those past `count` are
// 1.
void compress_cpu(float* values, uint64_t count, float scale, uint8_t* bits);

// The server's step: error[i] <- error[i] + (1 / ranks) * (sum over r of scales[r] * sign(r, i)), where
// bit i of rank r's bits, at bits + r * stride, gives sign(r, i). Returns the sum of squares as above.
double average_cpu(const uint8_t* bits, uint64_t stride, const float* scales, uint32_t ranks, float* error, uint64_t count);

// Computes values[count] <- scale * sign.
void expand_cpu(const uint8_t* bits, uint64_t count, float scale, float* values);

}  // namespace gannet::rules
