// Self-attention of a micro-batch in tiles: no array of words by words is kept, nor is there ever one. (Dao et al. 2022,
// FlashAttention: a tile's softmax is corrected when a later tile has a larger maximum; backward makes the probabilities
// again from `lse`.)
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/kernels.h"

namespace gannet::nn {

struct Attended {
  at::Tensor context;  // [batch * length, width]
  at::Tensor lse;      // [batch, heads, length]: the logarithm of each row's sum of exponentials
};

/// qkv: [batch * length, 3 * width], queries, keys, values. `mask`, where it is defined, is added to the scores: of qkv's
/// dtype, expanded to [batch, heads, length, length].
Attended attention(const at::Tensor& qkv, const at::Tensor& mask, int64_t batch, int64_t heads, const Dropout& dropout);
/// The gradient of qkv.
at::Tensor attention_backward(const at::Tensor& gradient, const at::Tensor& qkv, const Attended& attended, const at::Tensor& mask,
                              int64_t heads, const Dropout& dropout);

}  // namespace gannet::nn
