// The one place where a parameter or a buffer is given memory of another device or dtype.
#pragma once

#include <ATen/core/Tensor.h>

namespace gannet {

/// The leaf has the values, the memory, the device and the dtype of `values` from now on, and stays the tensor that the program
/// holds. `leaf.set_data(values)` alone does so among the devices that LibTorch has built in; it refuses to move a leaf to one
/// that was registered at run time (PrivateUse1).
void move_leaf(const at::Tensor& leaf, const at::Tensor& values);

}  // namespace gannet
