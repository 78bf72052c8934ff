/// The loss of a batch for a Trainer.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/named_batch.h>
#include <gannet/to_device.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace gannet {

/// The result of a program's compute_loss: the mean over the items of the batch that count and, if
/// metrics are wanted, also the model's predictions and the labels, [samples, ...]. A single tensor
/// is taken as the mean.
struct BatchLoss {
  BatchLoss(at::Tensor mean) : mean(std::move(mean)) {}
  BatchLoss(at::Tensor mean, at::Tensor predictions, at::Tensor labels)
      : mean(std::move(mean)), predictions(std::move(predictions)), labels(std::move(labels)) {}
  at::Tensor mean, predictions, labels;
};

/// Cross entropy summed over the labels that are not -100, each with `smoothing` of its weight
/// spread over all classes: (1 - s) nll + s mean over classes of -log p (Szegedy et al. 2016). It
/// is computed in fp32, or in fp64 for fp64 logits, from logits [..., classes] and integer labels
/// [...]. For floating-point labels it is the squared error, averaged within each row and summed
/// over the rows. Throws Error(kArgument) for mismatched shapes, or if a CPU label is not a class.
at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing);
/// The number of labels that are not -100; the number of rows if the labels are floating-point; 0
/// for undefined labels.
int64_t count_labels(const at::Tensor& labels);

namespace detail {

struct BatchMeasurement {          // the result for one batch of this rank
  at::Tensor loss;                 // summed over its items
  at::Tensor predictions, labels;  // only if requested
};

// Converts integer labels to int64 for LibTorch's losses. If `some_count` is false, replaces -100 by
// class 0: a mean over no labels is NaN, and so are its gradients, even when multiplied by 0.
at::Tensor usable_labels(const at::Tensor& labels, bool some_count);
// Turns the mean over `items` into their sum, in fp32 or fp64, because 16 bits lose precision.
at::Tensor summed(const at::Tensor& mean, double items);
// A causal language model predicts each label from the preceding logits: forward(data, target)
// shifts the labels itself, and the first label does not count. Such a model declares
// `static constexpr bool kShiftsLabels = true;`.
template <class Model>
constexpr bool shifts_labels() {
  if constexpr (requires { bool{Model::kShiftsLabels}; })
    return Model::kShiftsLabels;
  else
    return false;
}
// The labels that are predicted, [batch, length - 1], and the logits that predict them.
at::Tensor predicted_labels(const at::Tensor& labels);
at::Tensor predicting_logits(const at::Tensor& logits);
template <class Model>
at::Tensor labels_of_predictions(const at::Tensor& labels) {
  return shifts_labels<Model>() && labels.defined() ? predicted_labels(labels) : labels;
}

template <class Batch>
concept HasDataAndTarget = requires(Batch& batch) {
  { batch.data } -> std::convertible_to<at::Tensor>;
  { batch.target } -> std::convertible_to<at::Tensor>;
};
template <class Model, class Batch>
concept HasLogits = requires(Model& model, Batch& batch) {
  { model.logits(batch.data) } -> std::convertible_to<at::Tensor>;
};
template <class Model, class Batch>
concept ForwardsBoth = requires(Model& model, Batch& batch) { model.forward(batch.data, batch.target); };
template <class Model, class Batch>
concept ForwardsData = requires(Model& model, Batch& batch) {
  { model.forward(batch.data) } -> std::convertible_to<at::Tensor>;
};

// Whether the model is an encoder-decoder model; its decoder reads shifted(labels).
template <class Model, class Batch>
concept HasLogitsOfLabels = requires(Model& model, Batch& batch, const at::Tensor& labels) {
  { model.logits(batch.data, model.shifted(labels)) } -> std::convertible_to<at::Tensor>;
};
// Whether forward(data, target) returns logits along with the loss.
template <class Output>
constexpr bool returns_logits() {
  return !std::convertible_to<Output, at::Tensor> &&
         (requires(Output output) { output.logits; } || !requires(Output output) { output.loss; });
}
template <class Model, class Batch>
concept ForwardsLogits = ForwardsBoth<Model, Batch> && requires(Model& model, Batch& batch) {
  requires returns_logits<decltype(model.forward(batch.data, batch.target))>();
};
// Whether the Trainer can get the model's logits for a batch with labels.
template <class Model, class Batch>
concept GivesLogits =
    HasLogits<Model, Batch> || HasLogitsOfLabels<Model, Batch> || ForwardsData<Model, Batch> || ForwardsLogits<Model, Batch>;

// Casts a floating-point tensor to `dtype`, which is the dtype of 16-bit parameters; returns
// anything else unchanged.
template <class T>
decltype(auto) as_input(T& value, const std::optional<at::ScalarType>& dtype) {
  if constexpr (std::same_as<std::remove_cv_t<T>, at::Tensor>)
    return dtype && value.defined() && at::isFloatingType(value.scalar_type()) ? value.to(*dtype) : at::Tensor(value);
  else
    return (value);
}

// Casts the floating-point tensors of a batch with names; leaves other batches unchanged.
template <class Batch>
void cast_named(Batch& batch, const std::optional<at::ScalarType>& dtype) {
  if constexpr (std::same_as<Batch, NamedBatch>)
    for (auto& [name, tensor] : batch) tensor = as_input(tensor, dtype);
}

/// Extracts loss and logits from the result of forward(data, target): a tensor, a pair or tuple, or
/// a struct with `loss`.
template <class Output>
std::pair<at::Tensor, at::Tensor> loss_and_logits(Output&& output) {
  if constexpr (std::convertible_to<Output, at::Tensor>) {
    return {output, {}};
  } else if constexpr (requires {
                         output.loss;
                         output.logits;
                       }) {
    return {output.loss, output.logits};
  } else if constexpr (requires { output.loss; }) {
    return {output.loss, {}};
  } else {
    return {std::get<0>(output), std::get<1>(output)};
  }
}

// During its lifetime, replaces the labels of a batch in which none counts, so that a mean over
// them is finite.
template <class Batch>
struct PatchedLabels {
  PatchedLabels(Batch& batch, bool on) : batch(batch) {
    if constexpr (kHasLabels)
      if (on && batch.target.defined()) former = std::exchange(batch.target, usable_labels(batch.target, false));
  }
  ~PatchedLabels() {
    if constexpr (kHasLabels)
      if (former.defined()) batch.target = former;
  }
  static constexpr bool kHasLabels = requires(Batch& one, at::Tensor labels) {
    one.target.defined();
    labels = std::exchange(one.target, labels);
  };
  Batch& batch;
  at::Tensor former;
};

}  // namespace detail

}  // namespace gannet
