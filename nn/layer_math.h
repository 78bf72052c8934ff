// Forward and backward of the transformer layer on tensors of one dtype, fp32 or fp64. Matrix
// products use LibTorch; everything else uses the kernels.
//
//   pre-norm:   z1 = x + drop(attention(norm(x)) ow + ob)
//               out = z1 + drop(gelu(mid(z1) inter_w + inter_b) output_w + output_b)
//   post-norm:  y1 = mid(x + drop(attention(x) ow + ob))
//               out = norm(y1 + drop(gelu(y1 inter_w + inter_b) output_w + output_b))
#pragma once

#include "nn/attention.h"
#include "nn/transformer_function.h"

namespace gannet::nn {

// The parameters in the compute dtype. The vectors are slices of one tensor that an operator
// created, so only that tensor's address is used, never that of a parameter: its values may be
// elsewhere (ZeRO stage 3).
struct LayerWeights {
  at::Tensor qkv, out, inter, output;                                                                  // matrices
  at::Tensor qkv_bias, out_bias, mid_gamma, mid_beta, inter_bias, output_bias, norm_gamma, norm_beta;  // vectors
};
LayerWeights weights_of(const std::array<at::Tensor, kParameters>& parameters, at::ScalarType dtype);

// The tensors that backward reads besides input, output and parameters. Rows are the N tokens of the
// micro-batch; they have width H, or I in the intermediate part.
struct LayerActivations {
  AttentionResult attended;
  at::Tensor qkv;                    // [N, 3H]
  at::Tensor z1, y1;                 // [N, H]: input and output of the middle norm; one of them may be undefined
  at::Tensor inter;                  // [N, I]: before GELU, bias included
  at::Tensor activated;              // [N, I]: after GELU; undefined with gelu_checkpoint
  at::Tensor z2;                     // [N, H]: the input of a post-norm layer's last norm; undefined if its output is used
  at::Tensor mid_stats, norm_stats;  // [2, N]: mean and rstd of the rows
};

/// `x` and the result are [N, H]. `mask` must be expanded. If `kept` is null, nothing is kept.
at::Tensor layer_forward(const LayerCall& call, const at::Tensor& x, int64_t batch, const at::Tensor& mask,
                         const LayerWeights& weights, LayerActivations* kept);

struct LayerGradients {
  at::Tensor x;
  std::array<at::Tensor, kParameters> parameters;  // matrices that are not needed stay undefined
};
/// `out` is read only if a post-norm layer's last norm kept its output. `is_needed` has one entry
/// per parameter.
LayerGradients layer_backward(const LayerCall& call, const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                              const at::Tensor& mask, const LayerWeights& weights, LayerActivations kept,
                              const std::array<bool, kParameters>& is_needed);

}  // namespace gannet::nn
