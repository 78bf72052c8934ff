/// BERT (Devlin et al. 2019) with its head for masked tokens. It has the names of Hugging Face's
/// BertForMaskedLM: bert.encoder.layer.0.attention.self.query.weight, cls.predictions.bias. The
/// head's matrix is the word embedding.
///
///   auto model = gannet::from_pretrained<gannet::models::Bert>("bert-base-uncased");
///   at::Tensor logits = model->forward(tokens);                    // [B, T] int64 -> [B, T, vocabulary]
///   at::Tensor loss = model->forward(tokens, labels, mask);        // labels: the masked tokens, -100 elsewhere
///
/// gannet/models/bert_classifier.h has BERT with a head that classifies whole texts.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/layers.h>
#include <gannet/model_config.h>
#include <gannet/pretrained.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gannet::models {

/// The names and defaults of Hugging Face's BertConfig.
struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  // The following are for BertForSequenceClassification (bert_classifier.h).
  int64_t num_labels = 2;          ///< with from_pretrained: num_labels, or else the number of names in id2label
  std::string problem_type = "";   ///< regression, single_label_classification, multi_label_classification; "": from the labels
  double classifier_dropout = -1;  ///< below 0: the same as hidden_dropout_prob

  static BertConfig from(const ModelConfig& json);
};

class BertBody;

class BertImpl : public torch::nn::Module {
 public:
  using Config = BertConfig;

  explicit BertImpl(const BertConfig& config);

  at::Tensor forward(const at::Tensor& tokens) { return logits(tokens, {}); }
  /// Returns the mean cross entropy of the labels. mask: [B, T], 0 for padding; token_types: [B,
  /// T], all 0 if not given.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, const std::optional<at::Tensor>& mask = {},
                     const std::optional<at::Tensor>& token_types = {});
  at::Tensor logits(const at::Tensor& tokens, const std::optional<at::Tensor>& mask,
                    const std::optional<at::Tensor>& token_types = {});
  /// All layers except the head; they map (tokens), (tokens, mask) or (tokens, mask, token_types)
  /// to [B, T, hidden_size].
  std::vector<Layer> layers();
  /// For a pipeline (gannet/pipe.h): all layers, from (tokens), (tokens, mask) or (tokens, mask,
  /// token_types) to the logits, and their loss.
  std::vector<Layer> pipeline_layers();
  at::Tensor pipeline_loss(const at::Tensor& logits, const at::Tensor& labels) const;
  PretrainedNames pretrained_names() const;
  const BertConfig& config() const { return config_; }

 private:
  at::Tensor head(const at::Tensor& x);

  BertConfig config_;
  std::shared_ptr<BertBody> body_;
  std::shared_ptr<torch::nn::Module> predictions_;  // the head's modules
  torch::nn::Linear transform_{nullptr};
  torch::nn::LayerNorm transform_norm_{nullptr};
  at::Tensor bias_;  // shape [vocab_size]
};
TORCH_MODULE(Bert);

}  // namespace gannet::models
