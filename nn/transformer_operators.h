// The transformer layer composed of LibTorch operators. It runs on every device except the CPU,
// which has its own kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "nn/transformer_function.h"

namespace gannet::nn {

/// Returns the same as run_layer, up to rounding. Matrix products use the dtype of the parameters,
/// while those on the CPU use fp32 or fp64; so a 16-bit model uses the device's 16-bit units.
/// is_invertible and keeps_activated, which control what the CPU kernels keep, are ignored.
at::Tensor layer_by_operators(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                              const std::array<at::Tensor, kParameters>& parameters);

/// Returns booleans [rows, columns], which are true for kept elements. They are the same elements
/// that dropout_word (rule.h) keeps, computed with integer operators of the device.
at::Tensor kept_elements(const Dropout& dropout, int64_t rows, int64_t columns, at::Device device);

}  // namespace gannet::nn
