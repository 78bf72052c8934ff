#include "bert_body.h"

#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace gannet::models {

BertLayer::BertLayer(const BertConfig& config) : config_(config) {
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

Tensor BertLayer::forward(const Tensor& x, const MaybeTensor& bias) {
  const int64_t heads = config_.num_attention_heads;
  const AttentionOptions how{.dropout = is_training() ? config_.attention_probs_dropout_prob : 0,
                             .scale = 1 / std::sqrt(static_cast<double>(config_.hidden_size / heads)),
                             .is_causal = false};
  const Tensor seen = attention(split_heads(query_->forward(x), heads), split_heads(key_->forward(x), heads),
                                split_heads(value_->forward(x), heads), bias, how);
  const Tensor attended = attention_norm_->forward(x + drop(attention_dense_->forward(merge_heads(seen))));
  const Tensor wide = activated(config_.hidden_act, intermediate_->forward(attended));
  return norm_->forward(attended + drop(dense_->forward(wide)));
}

BertBody::BertBody(const BertConfig& config, bool has_pooler) : config_(config) {
  require_multiple("BertConfig: hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  const auto embeddings = folder(*this, "embeddings");
  words_ =
      embeddings->register_module("word_embeddings", embedding(config.vocab_size, config.hidden_size, config.initializer_range));
  positions_ = embeddings->register_module(
      "position_embeddings", embedding(config.max_position_embeddings, config.hidden_size, config.initializer_range));
  types_ = embeddings->register_module("token_type_embeddings",
                                       embedding(config.type_vocab_size, config.hidden_size, config.initializer_range));
  embedding_norm_ = embeddings->register_module("LayerNorm", layer_norm(config.hidden_size, config.layer_norm_eps));
  const auto list = folder(*folder(*this, "encoder"), "layer");
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<BertLayer>(config)));
  if (has_pooler)
    pooler_ = folder(*this, "pooler")
                  ->register_module("dense", linear(config.hidden_size, config.hidden_size, true, config.initializer_range));
}

std::vector<Layer> BertBody::layers() {
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

PretrainedNames bert_names() {
  return {.base = "bert",
          .ignored = {"*embeddings.position_ids"},
          .renamed = {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}};
}

}  // namespace gannet::models
