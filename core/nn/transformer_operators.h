// The transformer layer as a composition of LibTorch's operators: what runs on every device but the CPU, which has kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "nn/transformer_function.h"

namespace gannet::nn {

/// What run_layer gives, to the rounding of other kernels. Products are taken in the parameters' dtype, where the CPU's are in
/// fp32 or fp64: a 16-bit model uses the device's 16-bit units. is_invertible and keeps_activated, which say what the CPU's
/// kernels keep, have no effect.
at::Tensor layer_by_operators(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                              const std::array<at::Tensor, kParameters>& parameters);

/// Booleans, [rows, columns]: true where an element is kept. The same elements as dropout_word (rule.h) keeps, by whole-number
/// operators of the device.
at::Tensor kept_elements(const Dropout& dropout, int64_t rows, int64_t columns, at::Device device);

}  // namespace gannet::nn
