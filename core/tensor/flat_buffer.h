// Flat buffers: all parameters, gradients or one kind of state of a group, one after another in one allocation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// A zeroed flat buffer. On the CPU it starts on a page of 4 KiB, at a distance from earlier ones that is no power of two:
// buffers walked together at such distances fall on the same cache sets (4K aliasing; DESIGN 2.4), and it asks for huge pages.
at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device);

// Of all flat buffers on the CPU that are alive, in bytes as they were asked for.
int64_t flat_bytes_alive();

}  // namespace gannet
