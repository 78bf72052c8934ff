// The only function that moves a parameter or a buffer to a different device or dtype.
#pragma once

#include <ATen/core/Tensor.h>

namespace gannet {

/// Gives the leaf the values, memory, device and dtype of `values`. The leaf remains the same
/// tensor that the program holds. `leaf.set_data(values)` does this only among LibTorch's
/// built-in devices; it refuses to move a leaf to a device that was registered at run time
/// (PrivateUse1).
void move_leaf(const at::Tensor& leaf, const at::Tensor& values);

}  // namespace gannet
