// BERT without a head, shared by BertForMaskedLM and BertForSequenceClassification. Its parameters
// have the names after the prefix "bert.".
#pragma once

#include <gannet/models/bert.h>

#include "common.h"

namespace gannet::models {

// A layer: attention and a feed-forward layer, each followed by a residual connection and a
// LayerNorm.
class BertLayer : public torch::nn::Module {
 public:
  explicit BertLayer(const BertConfig& config);
  Tensor forward(const Tensor& x, const MaybeTensor& bias);

 private:
  Tensor drop(const Tensor& x) { return dropped(x, config_.hidden_dropout_prob, is_training()); }

  BertConfig config_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, attention_dense_{nullptr}, intermediate_{nullptr},
      dense_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, norm_{nullptr};
};

class BertBody : public torch::nn::Module {
 public:
  BertBody(const BertConfig& config, bool has_pooler);

  // The layers take (tokens), (tokens, mask) or (tokens, mask, token_types), and return [B, T,
  // hidden_size].
  std::vector<Layer> layers();
  Tensor forward(const Tensor& tokens, const MaybeTensor& mask, const MaybeTensor& token_types) {
    return run_layers(layers(), tokens, mask, token_types);
  }
  // Passes the first token's vector through a dense layer and tanh: [B, T, hidden_size] -> [B,
  // hidden_size].
  Tensor pooled(const Tensor& x) { return pooler_->forward(x.select(1, 0)).tanh(); }
  const torch::nn::Embedding& words() const { return words_; }
  const torch::nn::Linear& pooler() const { return pooler_; }

 private:
  BertConfig config_;
  torch::nn::Embedding words_{nullptr}, positions_{nullptr}, types_{nullptr};
  torch::nn::LayerNorm embedding_norm_{nullptr};
  std::vector<std::shared_ptr<BertLayer>> layers_;
  torch::nn::Linear pooler_{nullptr};  // null if the model has no pooler
};

// The older names of parameters, and names that the files of any BERT may have in addition to the
// model's parameters.
PretrainedNames bert_names();

}  // namespace gannet::models
