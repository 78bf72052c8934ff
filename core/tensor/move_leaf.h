// The only place where a parameter or a buffer is moved to another device or dtype.
#pragma once

#include <ATen/core/Tensor.h>

namespace gannet {

/// Gives the leaf the values, memory, device and dtype of `values`; it stays the tensor that the
/// program holds. `leaf.set_data(values)` does this only among LibTorch's built-in devices. It
/// refuses to move a leaf to a device that was registered at run time (PrivateUse1).
void move_leaf(const at::Tensor& leaf, const at::Tensor& values);

}  // namespace gannet
