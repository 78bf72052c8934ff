// What the models share: layers that are initialised as they are made (under zero::Init a parameter goes to its shards when the
// next is made), attention under a mask, the loss.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gannet/generate.h>
#include <gannet/layers.h>
#include <gannet/model_config.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <optional>
#include <string>
#include <utility>

namespace gannet::models {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// Weights normal with `deviation`, biases zero.
torch::nn::Linear linear(int64_t in, int64_t out, bool bias, double deviation);
torch::nn::Embedding embedding(int64_t rows, int64_t width, double deviation);
torch::nn::LayerNorm layer_norm(int64_t width, double epsilon);

// Of a config that a program made: `whole` is a multiple of `part`, and both are at least 1. Else Error(kArgument) with the
// names.
void require_multiple(const char* whole_name, int64_t whole, const char* part_name, int64_t part);

// A module that only holds others, so that names have its own in them: "transformer", "h".
std::shared_ptr<torch::nn::Module> folder(torch::nn::Module& parent, const std::string& name);

// fp64 as it is, all else in fp32.
Tensor widened(const Tensor& x);

// x / sqrt(mean(x^2) + epsilon) * weight, computed in fp32 or fp64 (Zhang & Sennrich 2019).
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double epsilon);
  Tensor forward(const Tensor& x);

 private:
  double epsilon_;
  Tensor weight_;
};
TORCH_MODULE(RmsNorm);

// The activation that config.json names: gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish, which are the same one.
// require_activation checks the name once, when the config is read.
Tensor activated(const std::string& name, const Tensor& x);
void require_activation(const ModelConfig& json, const char* key, const std::string& name);

Tensor dropped(const Tensor& x, double probability, bool training);

// [B, T, heads * width] -> [B, heads, T, width], and back.
Tensor split_heads(const Tensor& x, int64_t heads);
Tensor merge_heads(const Tensor& x);

// What a query may look at, to be added to its scores: 0, or the lowest number. [B or 1, 1, queries, total]. Queries are the last
// of `total` tokens. keep: [B, total], false for padding, or undefined. window: how many of the last tokens, itself included; 0:
// all. nullopt where causality is all there is to say, which attention() does by itself.
MaybeTensor causal_bias(int64_t queries, int64_t total, const Tensor& keep, int64_t window, at::TensorOptions options);
// [B, 1, 1, total]; nullopt where `keep` is undefined.
MaybeTensor padding_bias(const Tensor& keep, at::TensorOptions options);

struct Attention {
  double dropout = 0;
  double scale = 1;
  bool is_causal = true;  // where there is no bias
};
// query: [B, heads, T, width]; key, value: [B, fewer heads, S, width], of which each serves a group of the query's.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& bias, const Attention& how);

// Places of tokens in their text, counted from the first that is no padding: [B or 1, T], of the last T of all.
Tensor positions_of(int64_t count, int64_t total, const Tensor& keep, at::Device device);
// `mask` of Hugging Face's kind (numbers, 1 where a token counts) as booleans; undefined stays.
Tensor as_keep(const MaybeTensor& mask);

// Mean cross entropy over the labels that are not -100, in fp32, or fp64 of fp64 logits. logits: [..., V], labels: [...]
// integers.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
// The same with each label at the token that it is, as Hugging Face's: the logits before it predict it.
Tensor next_token_loss(const Tensor& logits, const Tensor& labels);

void require_positions(const char* model, int64_t length, int64_t positions);

}  // namespace gannet::models
