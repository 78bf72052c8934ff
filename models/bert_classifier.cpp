#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/mse_loss.h>
#include <gannet/error.h>
#include <gannet/models/bert_classifier.h>

#include "bert_body.h"

namespace gannet::models {
namespace {

constexpr const char* kRegression = "regression";
constexpr const char* kSingle = "single_label_classification";
constexpr const char* kMulti = "multi_label_classification";

std::string shape_of(const Tensor& tensor) {
  std::string text = "[";
  for (const int64_t size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

[[noreturn]] void refuse(const std::string& what, const std::string& next) {
  throw Error(ErrorCode::kArgument, "BertForSequenceClassification: " + what, next);
}

void check_problem(const BertConfig& config) {
  const std::string& type = config.problem_type;
  if (!type.empty() && type != kRegression && type != kSingle && type != kMulti)
    refuse("problem_type is '" + type + "'", std::string("choose ") + kRegression + ", " + kSingle + " or " + kMulti);
  if (config.num_labels < 1) refuse("num_labels is " + std::to_string(config.num_labels), "give each text at least 1 logit");
  if (type == kSingle && config.num_labels == 1)
    refuse(std::string(kSingle) + " among 1 class", "two classes have num_labels 2; a number has problem_type regression");
}

bool are_classes(const Tensor& labels) { return at::isIntegralType(labels.scalar_type(), /*includeBool=*/false); }

std::string problem_of(const BertConfig& config, const Tensor& labels) {
  if (!config.problem_type.empty()) return config.problem_type;
  if (config.num_labels == 1) return kRegression;
  return are_classes(labels) ? kSingle : kMulti;
}

// Refuses labels that the head has no class for, a common mistake: num_labels was left at 2. On a
// GPU labels are not checked, since reading them would stall the GPU's queue.
void check_classes(const Tensor& labels, int64_t count) {
  if (!labels.device().is_cpu() || labels.numel() == 0) return;
  const Tensor wrong = labels.masked_select(labels.ne(-100).logical_and(labels.lt(0).logical_or(labels.ge(count))));
  if (wrong.numel() == 0) return;
  refuse("a label is " + std::to_string(wrong[0].item<int64_t>()) + ", and num_labels is " + std::to_string(count) +
             ": classes are 0 to " + std::to_string(count - 1),
         "set num_labels in config.json, or in from_pretrained's model_overwrite; -100 is a text that does not count");
}

}  // namespace

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config) : config_(config) {
  check_problem(config_);
  if (config_.classifier_dropout < 0) config_.classifier_dropout = config_.hidden_dropout_prob;
  body_ = register_module("bert", std::make_shared<BertBody>(config_, /*has_pooler=*/true));
  classifier_ = register_module("classifier", linear(config_.hidden_size, config_.num_labels, true, config_.initializer_range));
}

std::vector<Layer> BertForSequenceClassificationImpl::layers() { return body_->layers(); }

Tensor BertForSequenceClassificationImpl::head(const Tensor& x) {
  return classifier_->forward(dropped(body_->pooled(x), config_.classifier_dropout, is_training()));
}

std::vector<Layer> BertForSequenceClassificationImpl::pipeline_layers() {
  std::vector<Layer> list = layers();
  list.push_back(
      gannet::function("classifier", {body_->pooler().ptr(), classifier_.ptr()}, [this](const Tensor& x) { return head(x); }));
  return list;
}

Tensor BertForSequenceClassificationImpl::pipeline_loss(const Tensor& logits, const Tensor& labels) const {
  return loss_of_logits(logits, labels);
}

Tensor BertForSequenceClassificationImpl::logits(const Tensor& tokens, const MaybeTensor& mask, const MaybeTensor& token_types) {
  return head(body_->forward(tokens, mask, token_types));
}

Tensor BertForSequenceClassificationImpl::forward(const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask,
                                                  const MaybeTensor& token_types) {
  return loss_of_logits(logits(tokens, mask, token_types), labels);
}

Tensor BertForSequenceClassificationImpl::loss_of_logits(const Tensor& logits, const Tensor& labels) const {
  const std::string problem = problem_of(config_, labels);
  const int64_t texts = logits.size(0), wanted = problem == kSingle ? texts : texts * config_.num_labels;
  if (labels.numel() != wanted || labels.dim() == 0 || labels.size(0) != texts)
    refuse("labels " + shape_of(labels) + " for logits " + shape_of(logits) + " with problem_type " + problem,
           problem == kSingle
               ? "give one integer for each text, [B]; several classes of a text are [B, num_labels] of 0.0 and 1.0"
               : "give a number for each logit, [B, num_labels]");
  if (problem == kSingle) {
    if (!are_classes(labels)) refuse("labels of floating point with problem_type " + problem, "give integers, [B]");
    check_classes(labels, config_.num_labels);
    return cross_entropy(logits, labels);
  }
  const Tensor wide = widened(logits), values = labels.to(wide.scalar_type()).reshape_as(wide);
  return problem == kRegression ? at::mse_loss(wide, values) : at::binary_cross_entropy_with_logits(wide, values);
}

PretrainedNames BertForSequenceClassificationImpl::pretrained_names() const {
  PretrainedNames names = bert_names();
  names.ignored.insert(names.ignored.end(), {"cls.predictions.*", "cls.seq_relationship.*"});  // the heads used for pretraining
  return names;
}

}  // namespace gannet::models
