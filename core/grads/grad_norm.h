// Sums of squares over flat gradient buffers, with a check that every element is finite, in the
// same pass over memory.
//
//   NormResult total = sum_of_squares(grad, GANNET_BFLOAT16, numel, /*offset=*/0);
//   if (total.finite) norm = std::sqrt(total.sum_of_squares);
//
// The sum does not depend on threads or SIMD width. Blocks of kNormBlock elements, counted from the
// start of the whole buffer, are summed in fp64 over 32 fixed lanes, and block sums are added in
// order. A buffer may therefore be cut at multiples of kNormBlock, if the pieces are taken in order
// and each call gets the result so far:
//
//   auto first = sum_of_squares(grad, dtype, cut, 0);
//   auto both = sum_of_squares(grad + cut, dtype, numel - cut, cut, first);        // bitwise equal to a single call
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <optional>

namespace gannet {

struct NormResult {
  double sum_of_squares = 0;  // NaN unless finite
  bool finite = true;         // true if no element is infinite or NaN
};

inline constexpr uint64_t kNormBlock = 65536;  // elements

// `data`: [count] elements of fp32, fp64, fp16 or bf16, which begin at element `offset` of the whole
// buffer.
NormResult sum_of_squares(const void* data, gannet_dtype dtype, uint64_t count, uint64_t offset, NormResult so_far = {});

// Returns the index of the first infinite or NaN element; nullopt if there is none.
std::optional<uint64_t> first_non_finite(const void* data, gannet_dtype dtype, uint64_t count);

}  // namespace gannet
