// A flat buffer holds all parameters, all gradients or one kind of state of a group, one after
// another in one allocation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Allocates a zeroed flat buffer. On the CPU, it starts on a 4 KiB page. From 2 MiB on, it asks for
// huge pages, and starts at another offset in its mapping than recent buffers: at equal offsets, they
// would map to the same cache sets, which slows code that traverses them together (4K aliasing;
// DESIGN 2.4). Throws Error(kOutOfMemory), or std::bad_alloc for a smaller buffer.
at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device);

// The total of the bytes that were requested for all live flat buffers on the CPU.
int64_t flat_bytes_alive();

}  // namespace gannet
