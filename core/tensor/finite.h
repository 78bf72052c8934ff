// Numbers that are NaN or infinite, counted in bytes as they lie in memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Of `bytes` bytes of elements; 0 for types that hold finite numbers alone. As fast as memory is read.
uint64_t count_not_finite(const void* data, uint64_t bytes, c10::ScalarType dtype);
// Of a tensor on any device.
uint64_t count_not_finite(const at::Tensor& tensor);

}  // namespace gannet
