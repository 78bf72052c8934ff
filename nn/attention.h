// Self-attention of a micro-batch in tiles, without ever allocating a tokens-by-tokens array. The
// method is FlashAttention (Dao et al. 2022): a tile's softmax is corrected when a later tile has a
// larger maximum, and backward recomputes the probabilities from `lse`.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/kernels.h"

namespace gannet::nn {

struct AttentionResult {
  at::Tensor context;  // [batch * length, width]
  at::Tensor lse;      // [batch, heads, length]: the logarithm of each row's sum of exponentials
};

/// `qkv` is [batch * length, 3 * width]: queries, keys and values. `mask`, if defined, is added to
/// the scores; it has the dtype of `qkv` and is expanded to [batch, heads, length, length].
AttentionResult attention(const at::Tensor& qkv, const at::Tensor& mask, int64_t batch, int64_t heads, const Dropout& dropout);
/// Returns the gradient of qkv.
at::Tensor attention_backward(const at::Tensor& gradient, const at::Tensor& qkv, const AttentionResult& attended,
                              const at::Tensor& mask, int64_t heads, const Dropout& dropout);

}  // namespace gannet::nn
