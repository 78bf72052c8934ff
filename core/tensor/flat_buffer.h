// A flat buffer holds all parameters, all gradients or one kind of state of a group, one after
// another in one allocation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace gannet {

// Allocates a zeroed flat buffer. On the CPU, it starts on a 4 KiB page. From 2 MiB on, it requests
// huge pages, and starts at a different offset in its mapping than recent buffers: at equal
// offsets, they would share cache sets, which slows code that traverses them together (4K
// aliasing). Throws Error(kOutOfMemory), or std::bad_alloc for a smaller buffer.
at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device);

// Returns the total bytes requested for all live flat buffers on the CPU.
int64_t flat_bytes_alive();

}  // namespace gannet
