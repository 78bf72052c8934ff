/// BERT with a head for whole texts, as in the GLUE tasks: it predicts a class, several classes, or
/// numbers for each text. It has the names of Hugging Face's BertForSequenceClassification:
/// bert.pooler.dense.weight, classifier.weight.
///
///   gannet::PretrainedReceipt receipt;                          // .missing: classifier.weight and .bias, where the folder's
///   auto model = gannet::from_pretrained<gannet::models::BertForSequenceClassification>(   // model has no such head
///       "bert-base-uncased", {.model_overwrite = {{"num_labels", 3}}}, &receipt);
///   at::Tensor logits = model->forward(tokens);                  // [B, T] int64 -> [B, num_labels]
///   at::Tensor loss = model->forward(tokens, labels, mask);      // labels: [B] integers
///
/// The loss is Hugging Face's and depends on problem_type: for regression, it is the mean squared
/// error against labels [B] or [B, num_labels]; for single_label_classification, the cross entropy
/// against integer labels [B], ignoring -100; for multi_label_classification, the
/// binary cross entropy against labels [B, num_labels] of 0 and 1. Without a problem_type, the
/// problem is regression if num_labels is 1; otherwise integer labels make it single-label, and
/// floating-point labels make it multi-label. Throws Error(kArgument) for labels that do not fit.
#pragma once

#include <gannet/models/bert.h>

#include <memory>
#include <optional>
#include <vector>

namespace gannet::models {

class BertForSequenceClassificationImpl : public torch::nn::Module {
 public:
  using Config = BertConfig;

  explicit BertForSequenceClassificationImpl(const BertConfig& config);

  at::Tensor forward(const at::Tensor& tokens) { return logits(tokens, {}); }
  /// mask: [B, T], 0 for padding; token_types: [B, T], 1 for the second text of a pair; all 0 if
  /// not given.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, const std::optional<at::Tensor>& mask = {},
                     const std::optional<at::Tensor>& token_types = {});
  at::Tensor logits(const at::Tensor& tokens, const std::optional<at::Tensor>& mask,
                    const std::optional<at::Tensor>& token_types = {});
  /// Returns the mean loss for logits [B, num_labels], for programs that need both; the Trainer
  /// evaluates with it.
  at::Tensor loss_of_logits(const at::Tensor& logits, const at::Tensor& labels) const;
  /// All layers except the pooler and the head, as in Bert.
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
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(BertForSequenceClassification);

}  // namespace gannet::models
