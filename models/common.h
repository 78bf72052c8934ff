// Code shared by the models: layers that are initialised when they are made (under zero::Init a
// parameter is sharded as soon as the next one is made), attention under a mask, the loss.
//
// A new model has a header in models/include/gannet/models/, a source beside this file, a row in
// tests/models/make_fixtures.py, and tests. It includes only public headers.
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

// These layers have normally distributed weights with standard deviation `deviation`, and zero
// biases.
torch::nn::Linear linear(int64_t in, int64_t out, bool bias, double deviation);
torch::nn::Embedding embedding(int64_t rows, int64_t width, double deviation);
torch::nn::LayerNorm layer_norm(int64_t width, double epsilon);

// For a config made by a program: throws Error(kArgument) with the two names unless `whole` is a
// multiple of `part` and both are at least 1.
void require_multiple(const char* whole_name, int64_t whole, const char* part_name, int64_t part);

// Makes a module that only holds other modules and prefixes their names: "transformer", "h".
std::shared_ptr<torch::nn::Module> folder(torch::nn::Module& parent, const std::string& name);

// Keeps fp64, and converts all other types to fp32.
Tensor widened(const Tensor& x);

// Computes x / sqrt(mean(x^2) + epsilon) in fp32 or fp64, converts it to the dtype of x, and multiplies
// it by the weight (Zhang & Sennrich 2019).
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double epsilon);
  Tensor forward(const Tensor& x);

 private:
  double epsilon_;
  Tensor weight_;
};
TORCH_MODULE(RmsNorm);

// Applies the activation that config.json names: gelu, gelu_new, gelu_pytorch_tanh, relu, silu or
// swish (the last two are the same). require_activation checks the name once, when the config is
// read.
Tensor activated(const std::string& name, const Tensor& x);
void require_activation(const ModelConfig& json, const char* key, const std::string& name);

Tensor dropped(const Tensor& x, double probability, bool training);

// Reshapes [B, T, heads * width] to [B, heads, T, width], and back.
Tensor split_heads(const Tensor& x, int64_t heads);
Tensor merge_heads(const Tensor& x);

// Returns the attention mask as a bias of the scores, [B or 1, 1, queries, total]: 0, or a very low
// number for a hidden key. The queries are the last of `total` tokens. `keep` is [B, total], false
// for padding, or undefined. `window` is the number of last tokens that a query sees, itself
// included; 0 means all. Returns nullopt if the mask is only causal and `queries` is 1 or `total`,
// which attention() handles by itself.
MaybeTensor causal_bias(int64_t queries, int64_t total, const Tensor& keep, int64_t window, at::TensorOptions options);
// Returns the mask of the padding as a bias, [B, 1, 1, total]; nullopt if `keep` is undefined.
MaybeTensor padding_bias(const Tensor& keep, at::TensorOptions options);

struct AttentionOptions {
  double dropout = 0;
  double scale = 1;
  bool is_causal = true;  // applies only if there is no bias
};
// `query` is [B, heads, T, width]; `key` and `value` are [B, fewer heads, S, width], and each of
// their heads serves a group of the query's heads.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& bias,
                 const AttentionOptions& how);

// The positions of tokens in their text, counted from the first token that is not padding: [B or 1,
// T], for the last T of all tokens.
Tensor positions_of(int64_t count, int64_t total, const Tensor& keep, at::Device device);
// Converts a Hugging Face `mask` (numbers, 1 if a token counts) to booleans; an undefined mask
// stays undefined.
Tensor as_keep(const MaybeTensor& mask);

// Mean cross entropy over the labels that are not -100, in fp32, or in fp64 for fp64 logits.
// `logits` is [..., V], and `labels` is [...], integers.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
// The same with each label at its own token, as in Hugging Face: the logits at the preceding token
// predict it. Throws Error(kArgument) for fewer than 2 tokens.
Tensor next_token_loss(const Tensor& logits, const Tensor& labels);

void require_positions(const char* model, int64_t length, int64_t positions);

}  // namespace gannet::models
