// Counts elements that are NaN or infinite.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Returns the count for `bytes` bytes of raw memory; 0 unless the dtype is fp64, fp32, fp16 or
// bf16. Runs at memory bandwidth.
uint64_t count_not_finite(const void* data, uint64_t bytes, c10::ScalarType dtype);
// Returns the count for a tensor on any device; 0 if undefined, on "meta" or not floating-point.
uint64_t count_not_finite(const at::Tensor& tensor);

}  // namespace gannet
