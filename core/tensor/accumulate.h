// Copies or adds gradients into flat buffers. A model has thousands of small gradients, for which
// LibTorch's dispatcher costs more than the copy, so gradients in host memory are written directly.
//
//   accumulate(into + offset, at::kFloat, gradient + begin, at::kBFloat16, numel, /*adds=*/false);   // if false: use LibTorch
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Computes into[i] = from[i], or into[i] += from[i], with the same rounding as LibTorch. Returns
// false and does nothing if the caller should use LibTorch: for dtypes that differ (except 16-bit to
// fp32), for sums in non-floating-point dtypes, and for long sums, where LibTorch is faster.
bool accumulate(void* into, at::ScalarType into_dtype, const void* from, at::ScalarType from_dtype, int64_t numel, bool adds);

}  // namespace gannet
