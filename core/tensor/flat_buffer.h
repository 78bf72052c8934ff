// Flat buffers: all parameters, gradients or one kind of state of a group, one after another in one allocation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Allocates a zeroed flat buffer. On the CPU it starts on a 4 KiB page, at a distance from earlier
// ones that is not a power of two: buffers at such distances that are walked together map to the
// same cache sets (4K aliasing; DESIGN 2.4). It asks for huge pages.
at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device);

// Total requested bytes of all live flat buffers on the CPU.
int64_t flat_bytes_alive();

}  // namespace gannet
