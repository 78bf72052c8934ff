// The transformer layer as a composition of LibTorch's operators, with dropout's masks made element by element.
#pragma once

#include <gannet/nn/transformer_layer.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <vector>

#include "nn/transformer_function.h"

namespace gannet::test {

namespace rule {
// Plain numbers for nn/rule.h.
#define GANNET_DEVICE inline
using std::abs;
using std::exp;
using std::fma;
template <class V>
V select(bool condition, V a, V b) {
  return condition ? a : b;
}
#include "nn/rule.h"
#undef GANNET_DEVICE
}  // namespace rule

using Parameters = std::array<at::Tensor, nn::kParameters>;

inline Parameters parameters_of(const nn::TransformerLayer& layer) {
  const auto& of = *layer;
  return {of.attn_qkvw, of.attn_qkvb, of.attn_ow,  of.attn_ob,  of.attn_nw, of.attn_nb,
          of.inter_w,   of.inter_b,   of.output_w, of.output_b, of.norm_w,  of.norm_b};
}

// 0 or 1 / (1 - ratio) for each element of rows by columns.
inline at::Tensor keep_mask(const nn::Dropout& dropout, int64_t rows, int64_t columns) {
  at::Tensor mask = torch::empty({rows, columns}, torch::kDouble);
  auto* out = mask.mutable_data_ptr<double>();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      *out++ = rule::dropout_word(row, column, dropout.stream, dropout.key) < dropout.threshold() ? 0 : dropout.scale();
  return mask;
}

inline at::Tensor composition(const nn::LayerCall& call, const at::Tensor& x, const at::Tensor& mask, const Parameters& p) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  const auto norm = [&](const at::Tensor& value, nn::Parameter gamma) {
    return torch::layer_norm(value, {width}, p[gamma], p[gamma + 1], call.eps);
  };
  const auto drop = [&](const at::Tensor& value, nn::DropoutSite site) {
    const nn::Dropout dropout = call.dropout(site);
    if (!dropout.is_on()) return value;
    const int64_t columns = value.size(-1);
    return value * keep_mask(dropout, value.numel() / columns, columns).view(value.sizes()).to(value.dtype());
  };
  const at::Tensor input = call.is_pre_norm ? norm(x, nn::kNormW) : x;
  const auto parts = torch::linear(input, p[nn::kQkvW], p[nn::kQkvB])
                         .view({batch, length, 3, call.heads, width / call.heads})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
  at::Tensor scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / call.heads));
  if (mask.defined()) scores = scores + mask.to(scores.dtype());
  const at::Tensor context = torch::matmul(drop(torch::softmax(scores, -1), nn::DropoutSite::kAttention), parts[2]);
  const at::Tensor attended = torch::linear(context.transpose(1, 2).reshape(x.sizes()), p[nn::kOutW], p[nn::kOutB]);
  const at::Tensor z1 = x + drop(attended, nn::DropoutSite::kAttentionOutput), y1 = norm(z1, nn::kMidNormW);
  const at::Tensor inter = torch::gelu(torch::linear(y1, p[nn::kInterW], p[nn::kInterB]), call.is_tanh ? "tanh" : "none");
  const at::Tensor out = drop(torch::linear(inter, p[nn::kOutputW], p[nn::kOutputB]), nn::DropoutSite::kLayerOutput);
  return call.is_pre_norm ? z1 + out : norm(y1 + out, nn::kNormW);
}

struct Result {
  at::Tensor y;
  std::vector<at::Tensor> gradients;  // of x, then of the parameters
};
template <class Layer>
Result run(const Layer& layer, const nn::LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
           const Parameters& parameters, const at::Tensor& gradient, at::ScalarType dtype) {
  const auto leaf = [&](const at::Tensor& tensor) { return tensor.detach().to(dtype).clone().requires_grad_(); };
  std::vector<at::Tensor> leaves{leaf(x)};
  Parameters own;
  for (size_t i = 0; i < own.size(); ++i) leaves.push_back(own[i] = leaf(parameters[i]));
  const at::Tensor y = layer(call, leaves[0], mask, own);
  return {y.detach(), torch::autograd::grad({y}, leaves, {gradient.to(dtype)})};
}

inline nn::LayerCall call_of(bool is_pre_norm, double ratio = 0, bool is_tanh = false, int64_t heads = 3) {
  return {.heads = heads,
          .eps = 1e-5,
          .is_pre_norm = is_pre_norm,
          .is_invertible = false,
          .keeps_activated = true,
          .is_tanh = is_tanh,
          .attention_ratio = ratio,
          .hidden_ratio = ratio,
          .key = 0x0123456789abcdefu,
          .layer = 5};
}

struct Problem {
  at::Tensor x, gradient;
  Parameters parameters;
};
inline Problem problem(int64_t batch, int64_t length, int64_t width = 24, int64_t inter = 40) {
  torch::manual_seed(7);
  const auto random = [](at::IntArrayRef shape, double size, double around = 0) {
    return torch::randn(shape, torch::kDouble) * size + around;
  };
  Problem made{random({batch, length, width}, 1), random({batch, length, width}, 1), {}};
  made.parameters = {
      random({3 * width, width}, 0.2), random({3 * width}, 0.2), random({width, width}, 0.2), random({width}, 0.2),
      random({width}, 0.2, 1),         random({width}, 0.2),     random({inter, width}, 0.2), random({inter}, 0.2),
      random({width, inter}, 0.2),     random({width}, 0.2),     random({width}, 0.2, 1),     random({width}, 0.2)};
  return made;
}

// Relative to the largest expected number, at least 1.
inline double distance(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wanted = expected.to(torch::kDouble);
  const double size = std::max(1.0, wanted.abs().max().item<double>());
  return (found.to(torch::kDouble) - wanted).abs().max().item<double>() / size;
}
inline void expect_close(const Result& found, const Result& expected, double tolerance, const std::string& what) {
  EXPECT_LE(distance(found.y, expected.y), tolerance) << what << ": output";
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_LE(distance(found.gradients[i], expected.gradients[i]), tolerance) << what << ": gradient " << i;
}
inline void expect_equal(const Result& found, const Result& expected, const std::string& what) {
  EXPECT_TRUE(at::equal(found.y, expected.y)) << what << ": output";
  for (size_t i = 0; i < expected.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(found.gradients[i], expected.gradients[i])) << what << ": gradient " << i;
}

}  // namespace gannet::test
