// Copies or adds gradients into flat buffers. A model has thousands of small ones, for which
// LibTorch's dispatcher costs more than the copy, so host memory is written directly.
//
//   accumulate(into + offset, at::kFloat, gradient + begin, at::kBFloat16, numel, /*adds=*/false);   // or leave it to LibTorch
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// into[i] = from[i], or into[i] += from[i], rounded like LibTorch. Returns false and does nothing
// if LibTorch does as well: for other pairs of dtypes, and for long sums, which are worth its
// vector code.
bool accumulate(void* into, at::ScalarType into_dtype, const void* from, at::ScalarType from_dtype, int64_t numel, bool adds);

}  // namespace gannet
