#pragma once

namespace gannet::accelerators::checked {

// Registers the device's kernels and its fallback with LibTorch's dispatcher.
void register_kernels();

}  // namespace gannet::accelerators::checked
