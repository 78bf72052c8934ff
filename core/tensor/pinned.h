// Allocates page-locked host memory from LibTorch's allocator, which reuses a block only after the
// copies from or to it that the allocator knows of have ended.
#pragma once

#include <ATen/core/Tensor.h>

namespace gannet {

/// Allocates host memory for copies from and to `device`: page-locked memory, or plain memory if
/// the device is a CPU. If the machine refuses to lock memory, warns once and allocates plain
/// memory; copies then make the host wait.
at::Tensor pinned_empty(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);

}  // namespace gannet
