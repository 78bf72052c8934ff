#include "common.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <torch/nn/init.h>

#include <limits>

namespace gannet::models {

torch::nn::Linear linear(int64_t in, int64_t out, bool bias, double deviation) {
  torch::nn::Linear made(torch::nn::LinearOptions(in, out).bias(bias));
  torch::nn::init::normal_(made->weight, 0, deviation);
  if (bias) torch::nn::init::zeros_(made->bias);
  return made;
}

torch::nn::Embedding embedding(int64_t rows, int64_t width, double deviation) {
  torch::nn::Embedding made(rows, width);
  torch::nn::init::normal_(made->weight, 0, deviation);
  return made;
}

torch::nn::LayerNorm layer_norm(int64_t width, double epsilon) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(epsilon));
}

void require_multiple(const char* whole_name, int64_t whole, const char* part_name, int64_t part) {
  if (part >= 1 && whole >= 1 && whole % part == 0) return;
  throw Error(
      ErrorCode::kArgument,
      std::string(whole_name) + " " + std::to_string(whole) + " is not a multiple of " + part_name + " " + std::to_string(part),
      "both are at least 1, and each head has an equal part");
}

std::shared_ptr<torch::nn::Module> folder(torch::nn::Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

RmsNormImpl::RmsNormImpl(int64_t width, double epsilon)
    : epsilon_(epsilon),
      weight_(register_parameter("weight", at::ones({width}, at::TensorOptions().dtype(c10::get_default_dtype())))) {}

Tensor widened(const Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

Tensor RmsNormImpl::forward(const Tensor& x) {
  const Tensor wide = widened(x);
  const Tensor scaled = wide * at::rsqrt(wide.square().mean(-1, true) + epsilon_);
  return weight_ * scaled.to(x.scalar_type());
}

Tensor activated(const std::string& name, const Tensor& x) {
  if (name == "gelu") return at::gelu(x);
  if (name == "relu") return at::relu(x);
  if (name == "silu" || name == "swish") return at::silu(x);
  return at::gelu(x, "tanh");
}

void require_activation(const ModelConfig& json, const char* key, const std::string& name) {
  for (const char* known : {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"})
    if (name == known) return;
  json.refuse(key, "the models have gelu, gelu_new, gelu_pytorch_tanh, relu and silu (also named swish)");
}

Tensor dropped(const Tensor& x, double probability, bool training) {
  return probability > 0 && training ? at::dropout(x, probability, true) : x;
}

Tensor split_heads(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

Tensor merge_heads(const Tensor& x) { return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)}); }

namespace {

// Returns 0 where `keep` is true, and a very low number elsewhere; that number is finite so that a
// row with no visible key has no NaN.
Tensor bias_of(const Tensor& keep, at::TensorOptions options) {
  const double lowest = options.dtype() == at::kHalf ? -65504.0 : static_cast<double>(std::numeric_limits<float>::lowest()) / 2;
  return at::zeros(keep.sizes(), options.requires_grad(false)).masked_fill_(keep.logical_not(), lowest);
}

}  // namespace

MaybeTensor causal_bias(int64_t queries, int64_t total, const Tensor& keep, int64_t window, at::TensorOptions options) {
  const bool is_cut = window > 0 && total > window;
  if (!keep.defined() && !is_cut && (queries == total || queries == 1)) return std::nullopt;
  const auto at_device = at::TensorOptions().dtype(at::kLong).device(options.device());
  const Tensor key = at::arange(total, at_device).unsqueeze(0),
               query = at::arange(total - queries, total, at_device).unsqueeze(1);
  Tensor sees = key <= query;  // shape [queries, total]
  if (is_cut) sees = sees.logical_and(key > query - window);
  sees = sees.view({1, 1, queries, total});
  if (keep.defined()) sees = sees.logical_and(keep.view({keep.size(0), 1, 1, total}));
  return bias_of(sees, options);
}

MaybeTensor padding_bias(const Tensor& keep, at::TensorOptions options) {
  if (!keep.defined()) return std::nullopt;
  return bias_of(keep.view({keep.size(0), 1, 1, keep.size(1)}), options);
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& bias,
                 const AttentionOptions& how) {
  const int64_t groups = query.size(1) / key.size(1);
  const auto for_all = [&](const Tensor& x) {
    if (groups == 1) return x;
    return x.unsqueeze(2)
        .expand({x.size(0), x.size(1), groups, x.size(2), x.size(3)})
        .reshape({x.size(0), x.size(1) * groups, x.size(2), x.size(3)});
  };
  // A single query without a bias sees every key.
  const bool is_causal = !bias && how.is_causal && query.size(2) > 1;
  return at::scaled_dot_product_attention(query, for_all(key), for_all(value), bias, how.dropout, is_causal, how.scale);
}

Tensor positions_of(int64_t count, int64_t total, const Tensor& keep, at::Device device) {
  if (keep.defined()) return (keep.cumsum(1) - 1).clamp_min(0).narrow(1, total - count, count);
  return at::arange(total - count, total, at::TensorOptions().dtype(at::kLong).device(device)).unsqueeze(0);
}

Tensor as_keep(const MaybeTensor& mask) { return mask && mask->defined() ? mask->to(at::kBool) : Tensor(); }

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(widened(logits.reshape({-1, logits.size(-1)})), labels.reshape({-1}).to(at::kLong));
}

Tensor next_token_loss(const Tensor& logits, const Tensor& labels) {
  const int64_t length = labels.size(1);
  if (length < 2)
    throw Error(ErrorCode::kArgument, "labels of " + std::to_string(length) + " tokens: the loss is that of all but the first",
                "give sequences of at least 2 tokens");
  return cross_entropy(logits.narrow(1, 0, length - 1), labels.narrow(1, 1, length - 1));
}

void require_positions(const char* model, int64_t length, int64_t positions) {
  if (length > positions)
    throw Error(ErrorCode::kArgument,
                std::string(model) + ": a sequence of " + std::to_string(length) + " tokens, and the model has " +
                    std::to_string(positions) + " positions",
                "cut the sequence, choose a model with more positions, or raise the number in from_pretrained's model_overwrite");
}

}  // namespace gannet::models
