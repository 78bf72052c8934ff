#pragma once

#include <c10/core/Storage.h>

namespace gannet::accelerators::checked {

// What LibTorch's code for any device asks of one: which it is, its generators, its pinned memory.
void register_hooks();
// Another size for a storage of the device; what fits of its bytes is kept.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace gannet::accelerators::checked
