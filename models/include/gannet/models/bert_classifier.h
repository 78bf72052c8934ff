/// BERT with a head for whole texts, as in the GLUE tasks: a class, several classes, or numbers for
/// each text. Names of Hugging Face's BertForSequenceClassification: bert.pooler.dense.weight,
/// classifier.weight.
///
///   gannet::PretrainedReceipt receipt;                          // .missing: classifier.weight and .bias, where the folder's
///   auto model = gannet::from_pretrained<gannet::models::BertForSequenceClassification>(   // model has no such head
///       "bert-base-uncased", {.model_overwrite = {{"num_labels", 3}}}, &receipt);
///   at::Tensor logits = model->forward(tokens);                  // [B, T] int64 -> [B, num_labels]
///   at::Tensor loss = model->forward(tokens, labels, mask);      // labels: [B] integers
///
/// The loss is Hugging Face's, by problem_type: regression, the mean squared error against labels
/// [B] or [B, num_labels]; single_label_classification, the cross entropy against [B] integers, of
/// which -100 does not count; multi_label_classification, the binary cross entropy against [B,
/// num_labels] of 0 and 1. Without problem_type, it is regression for one label, else single-label
/// for integers and multi-label for floating-point numbers. Throws Error(kArgument) for labels that
/// do not fit.
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
  /// mask: [B, T], 0 for padding; token_types: [B, T], 1 for the second text of a pair, 0 where not given.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, const std::optional<at::Tensor>& mask = {},
                     const std::optional<at::Tensor>& token_types = {});
  at::Tensor logits(const at::Tensor& tokens, const std::optional<at::Tensor>& mask,
                    const std::optional<at::Tensor>& token_types = {});
  /// The mean loss of logits [B, num_labels], for a program that needs both; the Trainer evaluates
  /// with it.
  at::Tensor loss_of_logits(const at::Tensor& logits, const at::Tensor& labels) const;
  /// All except pooler and head, as in Bert.
  std::vector<Layer> layers();
  PretrainedNames pretrained_names() const;
  const BertConfig& config() const { return config_; }

 private:
  BertConfig config_;
  std::shared_ptr<BertBody> body_;
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(BertForSequenceClassification);

}  // namespace gannet::models
