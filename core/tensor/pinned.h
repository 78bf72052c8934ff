// Allocates page-locked host memory from LibTorch's allocator, which reuses a block only after the
// copies that it knows of.
#pragma once

#include <ATen/core/Tensor.h>

namespace gannet {

/// Allocates host memory for copies from and to `device`: page-locked if the device has such
/// memory, plain on the CPU. If the machine refuses to lock it (warned once), it is plain as well,
/// and copies make the host wait.
at::Tensor pinned_empty(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);

}  // namespace gannet
