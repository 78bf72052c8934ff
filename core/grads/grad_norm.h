// Sums of squares over flat gradient buffers, and whether every element is finite: one pass over memory.
//
//   NormResult total = sum_of_squares(grad, GANNET_BFLOAT16, numel, /*offset=*/0);
//   if (total.finite) norm = std::sqrt(total.sum_of_squares);
//
// The sum does not depend on threads or SIMD width: blocks of kNormBlock elements, counted from the start of the whole
// buffer, are summed in fp64 over 32 fixed lanes, and their sums are added in order. So a buffer may also be cut at multiples
// of kNormBlock, the pieces taken in order and each given the result so far:
//
//   auto first = sum_of_squares(grad, dtype, cut, 0);
//   auto both = sum_of_squares(grad + cut, dtype, numel - cut, cut, first);        // bitwise as the whole
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <optional>

namespace gannet {

struct NormResult {
  double sum_of_squares = 0;  // NaN unless finite
  bool finite = true;         // no element is infinite or NaN
};

inline constexpr uint64_t kNormBlock = 65536;  // elements

// `data`: [count] of fp32, fp64, fp16 or bf16, the elements from `offset` on of the whole buffer.
NormResult sum_of_squares(const void* data, gannet_dtype dtype, uint64_t count, uint64_t offset, NormResult so_far = {});

// The index of the first infinite or NaN element.
std::optional<uint64_t> first_non_finite(const void* data, gannet_dtype dtype, uint64_t count);

}  // namespace gannet
