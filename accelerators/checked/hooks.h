#pragma once

#include <c10/core/Storage.h>

namespace gannet::accelerators::checked {

// Registers the hooks through which LibTorch's device-independent code reaches the devices, their
// generators and their pinned memory.
void register_hooks();
// Resizes a device storage and keeps the bytes that fit.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace gannet::accelerators::checked
