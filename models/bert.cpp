#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gannet/models/bert.h>

#include <cmath>

#include "common.h"

namespace gannet::models {

// Attention and a feed-forward layer, each with a residual connection and a LayerNorm behind it.
class BertLayer : public torch::nn::Module {
 public:
  explicit BertLayer(const BertConfig& config) : config_(config) {
    const auto attention = folder(*this, "attention");
    const auto self = folder(*attention, "self");
    const auto dense = [&](int64_t in, int64_t out) { return linear(in, out, true, config.initializer_range); };
    query_ = self->register_module("query", dense(config.hidden_size, config.hidden_size));
    key_ = self->register_module("key", dense(config.hidden_size, config.hidden_size));
    value_ = self->register_module("value", dense(config.hidden_size, config.hidden_size));
    const auto attention_output = folder(*attention, "output");
    attention_dense_ = attention_output->register_module("dense", dense(config.hidden_size, config.hidden_size));
    attention_norm_ = attention_output->register_module("LayerNorm", layer_norm(config.hidden_size, config.layer_norm_eps));
    intermediate_ = folder(*this, "intermediate")->register_module("dense", dense(config.hidden_size, config.intermediate_size));
    const auto output = folder(*this, "output");
    dense_ = output->register_module("dense", dense(config.intermediate_size, config.hidden_size));
    norm_ = output->register_module("LayerNorm", layer_norm(config.hidden_size, config.layer_norm_eps));
  }
  Tensor forward(const Tensor& x, const MaybeTensor& bias) {
    const int64_t heads = config_.num_attention_heads;
    const Attention how{.dropout = is_training() ? config_.attention_probs_dropout_prob : 0,
                        .scale = 1 / std::sqrt(static_cast<double>(config_.hidden_size / heads)),
                        .is_causal = false};
    const Tensor seen = attention(split_heads(query_->forward(x), heads), split_heads(key_->forward(x), heads),
                                  split_heads(value_->forward(x), heads), bias, how);
    const Tensor attended = attention_norm_->forward(x + drop(attention_dense_->forward(merge_heads(seen))));
    const Tensor wide = activated(config_.hidden_act, intermediate_->forward(attended));
    return norm_->forward(attended + drop(dense_->forward(wide)));
  }

 private:
  Tensor drop(const Tensor& x) { return dropped(x, config_.hidden_dropout_prob, is_training()); }

  BertConfig config_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, attention_dense_{nullptr}, intermediate_{nullptr},
      dense_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, norm_{nullptr};
};

BertConfig BertConfig::from(const ModelConfig& json) {
  json.require_type({"bert"});
  BertConfig config;
  config.vocab_size = json.size("vocab_size", config.vocab_size);
  config.hidden_size = json.size("hidden_size", config.hidden_size);
  config.num_hidden_layers = json.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = json.size("num_attention_heads", config.num_attention_heads);
  config.intermediate_size = json.size("intermediate_size", config.intermediate_size);
  config.hidden_act = json.text("hidden_act", config.hidden_act);
  config.hidden_dropout_prob = json.number("hidden_dropout_prob", config.hidden_dropout_prob);
  config.attention_probs_dropout_prob = json.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  config.max_position_embeddings = json.size("max_position_embeddings", config.max_position_embeddings);
  config.type_vocab_size = json.size("type_vocab_size", config.type_vocab_size);
  config.initializer_range = json.number("initializer_range", config.initializer_range);
  config.layer_norm_eps = json.number("layer_norm_eps", config.layer_norm_eps);
  require_activation(json, "hidden_act", config.hidden_act);
  if (config.hidden_size % config.num_attention_heads != 0)
    json.refuse("num_attention_heads", "hidden_size " + std::to_string(config.hidden_size) + " is no multiple of it");
  if (const std::string kind = json.text("position_embedding_type", "absolute"); kind != "absolute")
    json.refuse("position_embedding_type", "this BERT has absolute positions");
  if (json.flag("is_decoder", false)) json.refuse("is_decoder", "this BERT is an encoder");
  if (!json.flag("tie_word_embeddings", true))
    json.refuse("tie_word_embeddings", "this BERT's head has the word embedding's matrix");
  return config;
}

BertImpl::BertImpl(const BertConfig& config) : config_(config) {
  require_multiple("BertConfig: hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  const auto bert = folder(*this, "bert");
  const auto embeddings = folder(*bert, "embeddings");
  words_ =
      embeddings->register_module("word_embeddings", embedding(config.vocab_size, config.hidden_size, config.initializer_range));
  positions_ = embeddings->register_module(
      "position_embeddings", embedding(config.max_position_embeddings, config.hidden_size, config.initializer_range));
  types_ = embeddings->register_module("token_type_embeddings",
                                       embedding(config.type_vocab_size, config.hidden_size, config.initializer_range));
  embedding_norm_ = embeddings->register_module("LayerNorm", layer_norm(config.hidden_size, config.layer_norm_eps));
  const auto list = folder(*folder(*bert, "encoder"), "layer");
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<BertLayer>(config)));
  const auto predictions = folder(*folder(*this, "cls"), "predictions");
  const auto transform = folder(*predictions, "transform");
  transform_ =
      transform->register_module("dense", linear(config.hidden_size, config.hidden_size, true, config.initializer_range));
  transform_norm_ = transform->register_module("LayerNorm", layer_norm(config.hidden_size, config.layer_norm_eps));
  bias_ = predictions->register_parameter("bias",
                                          at::zeros({config.vocab_size}, at::TensorOptions().dtype(c10::get_default_dtype())));
}

std::vector<Layer> BertImpl::layers() {
  const auto embedded = [this](const Tensor& tokens, const MaybeTensor& mask = {}, const MaybeTensor& token_types = {}) {
    require_positions("BERT", tokens.size(1), config_.max_position_embeddings);
    const Tensor types = token_types && token_types->defined() ? *token_types : at::zeros_like(tokens);
    const Tensor places = positions_of(tokens.size(1), tokens.size(1), {}, tokens.device());
    const Tensor sum = words_->forward(tokens) + types_->forward(types) + positions_->forward(places);
    const Tensor x = dropped(embedding_norm_->forward(sum), config_.hidden_dropout_prob, is_training());
    return std::pair(x, padding_bias(as_keep(mask), x.options()));
  };
  std::vector<Layer> list = {
      gannet::function("bert.embeddings", {words_.ptr(), types_.ptr(), positions_.ptr(), embedding_norm_.ptr()}, embedded)};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool is_last = i + 1 == layers_.size();
    const std::string name = "bert.encoder.layer." + std::to_string(i);
    if (is_last)
      list.push_back(layer_of(name, layers_[i]));
    else
      list.push_back(layer_of(name, layers_[i], [](BertLayer& layer, const Tensor& x, const MaybeTensor& bias) {
        return std::pair(layer.forward(x, bias), bias);
      }));
  }
  return list;
}

Tensor BertImpl::logits(const Tensor& tokens, const MaybeTensor& mask, const MaybeTensor& token_types) {
  const Tensor x = run_layers(layers(), tokens, mask, token_types);
  const Tensor turned = transform_norm_->forward(activated(config_.hidden_act, transform_->forward(x)));
  return at::linear(turned, words_->weight, bias_);
}

Tensor BertImpl::forward(const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask, const MaybeTensor& token_types) {
  return cross_entropy(logits(tokens, mask, token_types), labels);
}

PretrainedNames BertImpl::pretrained_names() const {
  return {.base = "bert",
          .ignored = {"*embeddings.position_ids", "*pooler.dense.*", "cls.seq_relationship.*"},
          .tied = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                   {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
          .renamed = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}};
}

}  // namespace gannet::models
