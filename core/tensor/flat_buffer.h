// A flat buffer holds all parameters, all gradients or one kind of state of a group, one after
// another in one allocation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Allocates a zeroed flat buffer. On the CPU, it starts on a 4 KiB page, and its distance to
// earlier buffers is not a power of two: buffers at such distances map to the same cache sets,
// which slows code that traverses them together (4K aliasing; DESIGN 2.4). Large buffers ask for
// huge pages.
at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device);

// The total of the bytes that were requested for all live flat buffers on the CPU.
int64_t flat_bytes_alive();

}  // namespace gannet
