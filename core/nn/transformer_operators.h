// The transformer layer composed of LibTorch operators. It runs on every device except the CPU,
// which has kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "nn/transformer_function.h"

namespace gannet::nn {

/// Returns the same as run_layer, up to rounding. Products use the parameters' dtype, while the
/// CPU's use fp32 or fp64: a 16-bit model uses the device's 16-bit units. is_invertible and
/// keeps_activated, which control what the CPU's kernels keep, have no effect.
at::Tensor layer_by_operators(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                              const std::array<at::Tensor, kParameters>& parameters);

/// Booleans, [rows, columns]: true for kept elements. They are the same elements that dropout_word
/// (rule.h) keeps, computed with integer operators of the device.
at::Tensor kept_elements(const Dropout& dropout, int64_t rows, int64_t columns, at::Device device);

}  // namespace gannet::nn
