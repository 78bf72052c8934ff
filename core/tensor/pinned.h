// Page-locked memory of the host, from LibTorch's allocator for it, which gives a block again only behind the copies that it
// knows.
#pragma once

#include <ATen/core/Tensor.h>

namespace gannet {

/// On the host, for copies from and to `device`: page-locked where the device has such memory, plain on the CPU. Where the
/// machine refuses to lock it (once, a warning) it is plain, too, and the copies make the host wait.
at::Tensor pinned_empty(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);

}  // namespace gannet
