#include "model.h"

#include <gannet/error.h>
#include <torch/nn/init.h>

#include <cmath>

namespace gpt2 {
namespace {

using at::Tensor;

GptOptions checked(GptOptions options) {
  if (options.inner == 0) options.inner = 4 * options.width;
  for (const auto& [name, size] : {std::pair{"vocabulary", options.vocabulary},
                                   {"positions", options.positions},
                                   {"width", options.width},
                                   {"layers", options.layers},
                                   {"heads", options.heads},
                                   {"inner width", options.inner}})
    if (size <= 0)
      throw gannet::Error(gannet::ErrorCode::kArgument,
                          std::string("GPT-2: ") + name + " is " + std::to_string(size) + ", it must be positive");
  if (options.width % options.heads != 0)
    throw gannet::Error(gannet::ErrorCode::kArgument,
                        "GPT-2: a width of " + std::to_string(options.width) + " cannot be divided among " +
                            std::to_string(options.heads) + " heads",
                        "choose a width that is a multiple of the heads");
  return options;
}

double residual_deviation(const GptOptions& options) { return options.initializer_range / std::sqrt(2.0 * options.layers); }

torch::nn::LayerNorm layer_norm(const GptOptions& options) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width}).eps(options.epsilon));
}

Tensor dropped(const Tensor& x, double probability, bool training) {
  return probability > 0 && training ? at::dropout(x, probability, true) : x;
}

}  // namespace

Conv1DImpl::Conv1DImpl(int64_t in, int64_t out, double deviation, Operators operators) : operators_(operators) {
  weight_ = register_parameter("weight", torch::nn::init::normal_(torch::empty({in, out}), 0, deviation));
  bias_ = register_parameter("bias", torch::zeros({out}));
}

Tensor Conv1DImpl::forward(const Tensor& x) { return operators_.affine(x, weight_, bias_); }

AttentionImpl::AttentionImpl(const GptOptions& options, int64_t layer)
    : operators_(options.plain_operators),
      heads_(options.heads),
      dropout_(options.attention_dropout),
      scale_((options.scale_attention ? 1 / std::sqrt(static_cast<double>(options.width / options.heads)) : 1.0) /
             (options.scale_attention_by_layer ? layer + 1 : 1)),
      c_attn_(register_module("c_attn", Conv1D(options.width, 3 * options.width, options.initializer_range, operators_))),
      c_proj_(register_module("c_proj", Conv1D(options.width, options.width, residual_deviation(options), operators_))) {}

Tensor AttentionImpl::forward(const Tensor& x, int64_t batch) {
  const int64_t rows = x.size(0), width = x.size(1);
  // Uses unbind, not indexing: the backward of unbind writes the three gradients into one tensor,
  // whereas three selects would add up three tensors of that size.
  const auto qkv = c_attn_->forward(x)
                       .view({batch, rows / batch, 3, heads_, width / heads_})
                       .permute({2, 0, 3, 1, 4})  // shape [3, B, heads, T, width/heads]
                       .unbind();
  const Tensor y = operators_.causal_attention(qkv[0], qkv[1], qkv[2], is_training() ? dropout_ : 0, scale_);
  return c_proj_->forward(y.transpose(1, 2).reshape({rows, width}));
}

MlpImpl::MlpImpl(const GptOptions& options)
    : operators_(options.plain_operators),
      activation_(options.activation),
      c_fc_(register_module("c_fc", Conv1D(options.width, options.inner, options.initializer_range, operators_))),
      c_proj_(register_module("c_proj", Conv1D(options.inner, options.width, residual_deviation(options), operators_))) {
  if (activation_ != "gelu_new" && activation_ != "gelu_pytorch_tanh" && activation_ != "gelu" && activation_ != "relu")
    throw gannet::Error(gannet::ErrorCode::kUnsupported, "GPT-2: activation_function '" + activation_ + "'",
                        "this example has gelu_new, gelu_pytorch_tanh, gelu and relu");
}

Tensor MlpImpl::forward(const Tensor& x) {
  const Tensor wide = c_fc_->forward(x);
  if (activation_ == "relu") return c_proj_->forward(at::relu(wide));
  if (activation_ == "gelu") return c_proj_->forward(at::gelu(wide));
  return c_proj_->forward(activation_ == "gelu_new" ? operators_.gelu_tanh(wide) : at::gelu(wide, "tanh"));
}

BlockImpl::BlockImpl(const GptOptions& options, int64_t layer)
    : dropout_(options.residual_dropout),
      ln_1_(register_module("ln_1", layer_norm(options))),
      attn_(register_module("attn", Attention(options, layer))),
      ln_2_(register_module("ln_2", layer_norm(options))),
      mlp_(register_module("mlp", Mlp(options))) {}

Tensor BlockImpl::forward(const Tensor& x) {
  const Tensor rows = x.flatten(0, 1);  // shape [B*T, width]
  const Tensor attended = rows + dropped(attn_->forward(ln_1_->forward(rows), x.size(0)), dropout_, is_training());
  return (attended + dropped(mlp_->forward(ln_2_->forward(attended)), dropout_, is_training())).view(x.sizes());
}

TransformerImpl::TransformerImpl(const GptOptions& options)
    : options_(options),
      wte_(register_module("wte", torch::nn::Embedding(options.vocabulary, options.width))),
      wpe_(register_module("wpe", torch::nn::Embedding(options.positions, options.width))),
      h_(register_module("h", torch::nn::ModuleList())),
      ln_f_(register_module("ln_f", layer_norm(options))) {
  torch::nn::init::normal_(wte_->weight, 0, options.initializer_range);
  torch::nn::init::normal_(wpe_->weight, 0, options.initializer_range);
  for (int64_t layer = 0; layer < options.layers; ++layer) h_->push_back(Block(options, layer));
}

Tensor TransformerImpl::embed(const Tensor& tokens) {
  const int64_t length = tokens.size(1);
  if (length > options_.positions)
    throw gannet::Error(gannet::ErrorCode::kArgument,
                        "GPT-2: a sequence of " + std::to_string(length) + " tokens in a model of " +
                            std::to_string(options_.positions) + " positions",
                        "choose a shorter sequence (--seq-len) or a model with more positions");
  const Tensor x = Operators(options_.plain_operators).lookup(wte_->weight, tokens) + wpe_->weight.narrow(0, 0, length);
  return dropped(x, options_.embedding_dropout, is_training());
}

std::vector<gannet::Layer> TransformerImpl::layers() {
  std::vector<gannet::Layer> layers = {
      gannet::function("transformer.wte", {wte_.ptr(), wpe_.ptr()}, [this](const Tensor& tokens) { return embed(tokens); })};
  for (size_t i = 0; i < h_->size(); ++i)
    layers.push_back(gannet::layer_of("transformer.h." + std::to_string(i), h_->ptr<BlockImpl>(i)));
  layers.push_back(gannet::layer_of("transformer.ln_f", ln_f_));
  return layers;
}

GptImpl::GptImpl(const GptOptions& options)
    : options_(checked(options)), transformer_(register_module("transformer", Transformer(options_))) {}

Tensor GptImpl::forward(const Tensor& tokens, const Tensor& targets) {
  return Operators(options_.plain_operators)
      .head_loss(transformer_->forward(tokens), transformer_->token_embedding(), targets.flatten());
}

std::vector<gannet::Layer> GptImpl::pipeline_layers() {
  std::vector<gannet::Layer> all = layers();
  all.push_back(gannet::function("head", {transformer_->words()}, [](const Tensor& hidden) { return hidden; }));
  return all;
}

Tensor GptImpl::pipeline_loss(const Tensor& hidden, const Tensor& targets) {
  return Operators(options_.plain_operators).head_loss(hidden.flatten(0, 1), transformer_->token_embedding(), targets.flatten());
}

Tensor GptImpl::logits(const Tensor& tokens) {
  return at::matmul(transformer_->forward(tokens), transformer_->token_embedding().t())
      .view({tokens.size(0), tokens.size(1), -1});
}

Tensor GptImpl::forward(const Tensor& tokens) {
  const Tensor hidden = transformer_->forward(tokens).view({tokens.size(0), tokens.size(1), -1});
  return at::matmul(hidden.select(1, -1), transformer_->token_embedding().t());
}

}  // namespace gpt2
