/// The loss of a batch for a Trainer.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/to_device.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace gannet {

/// What a compute_loss of the program's returns: the mean over the items of the batch that count, and where metrics are wanted
/// what the model predicts and the labels, [samples, ...]. A tensor alone is the mean.
struct BatchLoss {
  BatchLoss(at::Tensor mean) : mean(std::move(mean)) {}
  BatchLoss(at::Tensor mean, at::Tensor predictions, at::Tensor labels)
      : mean(std::move(mean)), predictions(std::move(predictions)), labels(std::move(labels)) {}
  at::Tensor mean, predictions, labels;
};

/// Cross entropy summed over the labels that are not -100, each with `smoothing` of its weight spread over all classes:
/// (1 - s) nll + s mean over classes of -log p (Szegedy et al. 2016). Computed in fp32, of fp64 logits in fp64.
/// logits [..., classes], labels [...] integers.
/// With labels of floating point: the squared error, summed over rows and averaged within each.
at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing);
/// Labels that are not -100; of floating point, the rows; of undefined ones 0.
int64_t count_labels(const at::Tensor& labels);

namespace detail {

// The labels as LibTorch's losses take them, int64; without `some_count`, class 0 in place of -100: a mean over nothing is NaN,
// and so are its gradients, whatever they are multiplied by.
at::Tensor usable_labels(const at::Tensor& labels, bool some_count);
// The mean of `items` as their sum, in fp32 or fp64: 16 bits would lose digits of it.
at::Tensor summed(const at::Tensor& mean, double items);
// A causal language model predicts each label by the logits before it: forward(data, target) shifts the labels itself, and the
// first one counts for nothing. It says so by `static constexpr bool kShiftsLabels = true;`.
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

// An encoder-decoder: its decoder reads what shifted(labels) makes of the labels.
template <class Model, class Batch>
concept HasLogitsOfLabels = requires(Model& model, Batch& batch, const at::Tensor& labels) {
  { model.logits(batch.data, model.shifted(labels)) } -> std::convertible_to<at::Tensor>;
};
// forward(data, target) returns logits beside the loss.
template <class Output>
constexpr bool returns_logits() {
  return !std::convertible_to<Output, at::Tensor> &&
         (requires(Output output) { output.logits; } || !requires(Output output) { output.loss; });
}
template <class Model, class Batch>
concept ForwardsLogits = ForwardsBoth<Model, Batch> && requires(Model& model, Batch& batch) {
  requires returns_logits<decltype(model.forward(batch.data, batch.target))>();
};
// The Trainer can get the model's logits of a batch with labels.
template <class Model, class Batch>
concept GivesLogits =
    HasLogits<Model, Batch> || HasLogitsOfLabels<Model, Batch> || ForwardsData<Model, Batch> || ForwardsLogits<Model, Batch>;

// A tensor of floating point as the model's parameters are, in 16 bits; anything else as it is.
template <class T>
decltype(auto) as_input(T& value, const std::optional<at::ScalarType>& dtype) {
  if constexpr (std::same_as<std::remove_cv_t<T>, at::Tensor>)
    return dtype && value.defined() && at::isFloatingType(value.scalar_type()) ? value.to(*dtype) : at::Tensor(value);
  else
    return (value);
}

/// Loss and logits out of what a forward(data, target) returned: a tensor, a pair or tuple, or a struct with `loss`.
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

// Puts labels that a mean can be taken over into a batch none of whose labels count.
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
