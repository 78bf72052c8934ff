// Subsets of a dataset (its first samples, one rank's share of an evaluation), and losses over
// labels.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <c10/util/Exception.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer.h>

#include <algorithm>

namespace gannet {

namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes()) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// Called only after LibTorch's cross entropy threw, so that a step with valid labels costs nothing
// extra. Checks only labels on the CPU, because they cannot be read on a device after a device-side
// assertion.
void refuse_labels_outside(const at::Tensor& logits, const at::Tensor& labels) {
  if (!labels.is_cpu()) return;
  const int64_t classes = logits.size(-1);
  const at::Tensor flat = labels.reshape({-1}).to(at::kLong);
  const at::Tensor outside = flat.ne(-100).logical_and(flat.lt(0).logical_or(flat.ge(classes)));
  if (!outside.any().item<bool>()) return;
  throw Error(
      ErrorCode::kArgument,
      "a label is " + std::to_string(flat.masked_select(outside)[0].item<int64_t>()) + ", and the model's output " +
          shape_of(logits) + " has " + std::to_string(classes) + " classes (labels of shape " + shape_of(labels) + ")",
      "classes are numbered from 0 to " + std::to_string(classes - 1) +
          ", and a label of -100 does not count: give the model as many outputs as there are classes, or correct the labels");
}

at::Tensor widened(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat); }

}  // namespace

int64_t count_labels(const at::Tensor& labels) {
  if (!labels.defined()) return 0;
  if (at::isFloatingType(labels.scalar_type())) return labels.dim() == 0 ? 1 : labels.size(0);
  return labels.to(at::kLong).ne(-100).sum().item<int64_t>();  // uint8 cannot represent -100
}

at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  if (at::isFloatingType(labels.scalar_type())) {
    const double features = static_cast<double>(labels.numel()) / static_cast<double>(std::max<int64_t>(1, count_labels(labels)));
    const at::Tensor wide = widened(logits);
    if (wide.numel() != labels.numel())
      throw Error(ErrorCode::kArgument,
                  "labels of floating point have the shape " + shape_of(labels) + ", and the model's output " + shape_of(logits),
                  "labels of a regression have the output's shape; labels of classes are integers (to(torch::kLong))");
    return at::mse_loss(wide.reshape_as(labels), labels.to(wide.scalar_type()), at::Reduction::Sum) / features;
  }
  if (logits.dim() < 2 || logits.numel() / std::max<int64_t>(1, logits.size(-1)) != labels.numel())
    throw Error(ErrorCode::kArgument, "logits of the shape " + shape_of(logits) + " for labels of the shape " + shape_of(labels),
                "logits are [..., classes] for labels [...]; give a compute_loss where they are not");
  try {
    return at::cross_entropy_loss(widened(logits).reshape({-1, logits.size(-1)}), labels.reshape({-1}).to(at::kLong), {},
                                  at::Reduction::Sum, -100, smoothing);
  } catch (const c10::Error&) {
    refuse_labels_outside(logits, labels);
    throw;
  }
}

namespace detail {

at::Tensor usable_labels(const at::Tensor& labels, bool some_count) {
  if (!labels.defined() || !at::isIntegralType(labels.scalar_type(), /*includeBool=*/true)) return labels;
  const at::Tensor whole = labels.to(at::kLong);
  return some_count ? whole : whole.masked_fill(whole.eq(-100), 0);
}

at::Tensor summed(const at::Tensor& mean, double items) {
  return items > 0 ? widened(mean).mul(items) : mean.nan_to_num(0, 0, 0).mul(0);
}

at::Tensor predicted_labels(const at::Tensor& labels) {
  if (labels.dim() == 0 || labels.size(-1) == 0) return labels;
  return labels.narrow(-1, 1, labels.size(-1) - 1);
}

at::Tensor predicting_logits(const at::Tensor& logits) {
  if (logits.dim() < 2 || logits.size(-2) == 0) return logits;
  return logits.narrow(-2, 0, logits.size(-2) - 1);
}

using loading::Any;
using loading::Indices;
using loading::Source;

std::optional<int64_t> samples_of(const Source& source) {
  if (!source.read || !source.size) return std::nullopt;
  const auto size = source.size();
  return size ? std::optional(static_cast<int64_t>(*size)) : std::nullopt;
}

Source first_samples(Source source, int64_t limit) {
  const auto samples = samples_of(source);
  if (!samples)
    throw Error(ErrorCode::kArgument, "max_train_samples or max_eval_samples on a stream, whose samples have no number",
                "end the stream itself after that many samples");
  source.size = [count = std::min(*samples, limit)] { return std::optional<size_t>(count); };
  return source;
}

// Deals out blocks of batch_size samples: rank r of W gets blocks r, r + W, ..., so that one round
// over all ranks is a contiguous part of the data set.
Source share_of(Source source, int64_t batch_size, int64_t rank, int64_t world_size) {
  const int64_t samples = samples_of(source).value();
  std::vector<size_t> mine;
  for (int64_t begin = rank * batch_size; begin < samples; begin += world_size * batch_size)
    for (int64_t i = begin; i < std::min(begin + batch_size, samples); ++i) mine.push_back(static_cast<size_t>(i));
  source.size = [count = mine.size()] { return std::optional<size_t>(count); };
  source.read = [mine = std::move(mine), read = source.read](Indices indices) -> Any {
    std::vector<size_t> places(indices.size());
    std::transform(indices.begin(), indices.end(), places.begin(), [&](size_t index) { return mine.at(index); });
    return read(places);
  };
  return source;
}

void fail_without_loss() {
  throw Error(
      ErrorCode::kArgument,
      "the Trainer does not know this model's loss: it has neither forward(batch.data, batch.target) nor logits(batch.data) "
      "nor a forward(batch.data) that returns a tensor",
      "give .compute_loss, and .count_items where an update is to be divided by more than its micro-batches");
}

void fail_without_logits() {
  throw Error(ErrorCode::kArgument,
              "label_smoothing_factor is above 0, and this model's forward(batch.data, batch.target) returns only the loss: "
              "smoothing needs its logits",
              "give the model a logits(data), let forward return loss and logits (a pair), or smooth in a compute_loss");
}

void warn_without_predictions() {
  log_warning(
      "compute_metrics gets no predictions: this model's forward(batch.data, batch.target) returns only the loss (give it a "
      "logits(data), or let forward return a pair of loss and logits)");
}

void fail_without_decoder_labels() {
  throw Error(ErrorCode::kArgument, "a sample has no labels, and this model's decoder reads them: there are no logits without",
              "predict samples with labels, or write texts by gannet::generate");
}

void fail_without_labels() {
  throw Error(ErrorCode::kArgument, "a sample of train_dataset has no labels: its target is an undefined tensor",
              "give labels to train on; predict() takes samples without them");
}

void fail_without(const char* dataset, const char* call) {
  throw Error(ErrorCode::kArgument, std::string(call) + "() without samples: " + dataset + " is not given, or is empty",
              std::string("give .") + dataset + " to the Trainer");
}

void fail_probing_stream() {
  throw Error(ErrorCode::kUnsupported, "auto_find_batch_size with a stream: to try a batch size would use up samples of it",
              "give per_device_train_batch_size without auto_find_batch_size, or a train_dataset with random access");
}

}  // namespace detail
}  // namespace gannet
