// The transformer layer as one autograd node, which has its own forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "nn/kernels.h"

namespace gannet::nn {

// Parameters are always in this order.
enum Parameter {
  kQkvW,
  kQkvB,
  kOutW,
  kOutB,
  kMidNormW,
  kMidNormB,
  kInterW,
  kInterB,
  kOutputW,
  kOutputB,
  kNormW,
  kNormB,
  kParameters
};

struct LayerCall {
  int64_t heads;
  double eps;
  bool is_pre_norm, is_invertible, keeps_activated, is_tanh;
  double attention_ratio, hidden_ratio;  // the ratios of this call; 0 in evaluation mode
  uint64_t key;
  uint32_t layer;

  Dropout dropout(DropoutSite site) const {
    return {site == DropoutSite::kAttention ? attention_ratio : hidden_ratio, key, layer * 4 + static_cast<uint32_t>(site)};
  }
};

/// `x` is [batch, tokens, width]. `mask` is additive and four-dimensional, or undefined.
at::Tensor run_layer(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                     const std::array<at::Tensor, kParameters>& parameters);

}  // namespace gannet::nn
