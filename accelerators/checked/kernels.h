#pragma once

namespace gannet::accelerators::checked {

// Tells LibTorch's dispatcher of the device's kernels and of its fallback.
void register_kernels();

}  // namespace gannet::accelerators::checked
