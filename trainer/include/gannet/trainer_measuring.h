/// Measures the loss and the predictions of one batch for a Trainer, with the program's or the
/// model's functions.
#pragma once

#include <ATen/core/grad_mode.h>
#include <gannet/gannet.h>
#include <gannet/trainer_loss.h>
#include <gannet/trainer_parts.h>
#include <gannet/trainer_pipeline.h>

#include <concepts>
#include <optional>
#include <utility>

namespace gannet::detail {

template <class Model, class Batch>
struct MeasuredBatch {
  Engine<Model>& engine;
  Model& model;
  const TrainerParts<Model, Batch>& parts;
  double smoothing;                     // label_smoothing_factor
  std::optional<at::ScalarType> dtype;  // floating-point inputs are cast to it

  // The loss is summed over `items`, zero if there are none, and undefined without labels.
  BatchMeasurement measure(Batch& batch, double items, bool with_predictions) const {
    if (parts.compute_loss) {
      const PatchedLabels<Batch> patched(batch, items == 0 && !with_predictions);
      BatchLoss loss = parts.compute_loss(engine, batch);
      return {summed(loss.mean, items), loss.predictions, loss.labels};
    }
    if constexpr (HasDataAndTarget<Batch>) {
      if (batch.target.defined()) return of_labels(batch, items, with_predictions);
      if (at::GradMode::is_enabled()) fail_without_labels();
      if (with_predictions) return {{}, logits_of(batch, {}), batch.target};
    }
    return {};
  }

 private:
  BatchMeasurement of_labels(Batch& batch, double items, bool with_predictions) const {
    BatchMeasurement measured{{}, {}, batch.target};
    const at::Tensor labels = usable_labels(batch.target, items > 0);
    if constexpr (ForwardsBoth<Model, Batch>) {
      constexpr bool kHasLogitsAlone = HasLogits<Model, Batch> || HasLogitsOfLabels<Model, Batch> || ForwardsData<Model, Batch>;
      const bool needs_logits = smoothing > 0 || with_predictions;
      if (!needs_logits || !kHasLogitsAlone) {
        auto&& data = as_input(batch.data, dtype);
        const at::Tensor target = as_input(labels, dtype);
        const auto [mean, logits] = loss_and_logits(engine.forward(data, target));
        measured.predictions = logits;
        if (smoothing == 0) measured.loss = summed(mean, items);
      }
    }
    if (measured.loss.defined()) return measured;
    if (!measured.predictions.defined()) measured.predictions = logits_of(batch, labels);
    at::Tensor logits = measured.predictions;
    if constexpr (shifts_labels<Model>()) logits = predicting_logits(logits);
    // A model whose loss is not the cross entropy of its logits provides loss_of_logits().
    constexpr bool kHasLossOfLogits = requires(const Model& one, const at::Tensor& some) {
      { one.loss_of_logits(some, some) } -> std::convertible_to<at::Tensor>;
    };
    if constexpr (kHasLossOfLogits)
      if (smoothing == 0) measured.loss = summed(model.loss_of_logits(logits, labels), items);
    if (!measured.loss.defined()) measured.loss = summed_loss(logits, labels_of_predictions<Model>(labels), smoothing);
    if (items == 0) measured.loss = summed(measured.loss, 0);
    return measured;
  }
  at::Tensor logits_of(Batch& batch, const at::Tensor& labels) const {
    auto&& data = as_input(batch.data, dtype);
    if constexpr (HasLogits<Model, Batch>) {
      return engine.call([&](Model& one) { return at::Tensor(one.logits(data)); });
    } else if constexpr (HasLogitsOfLabels<Model, Batch>) {
      if (!labels.defined()) fail_without_decoder_labels();
      return engine.call([&](Model& one) { return at::Tensor(one.logits(data, one.shifted(labels))); });
    } else if constexpr (ForwardsData<Model, Batch>) {
      return engine.forward(data);
    } else {
      fail_without_loss();
    }
  }
};

// Keeps predictions only on request, in the form that compute_metrics receives.
template <class Model, class Batch>
BatchMeasurement kept(BatchMeasurement measured, bool with_predictions, const TrainerParts<Model, Batch>& parts) {
  if (with_predictions && measured.predictions.defined()) {
    measured.predictions = measured.predictions.detach();
    if (parts.preprocess_logits_for_metrics)
      measured.predictions = parts.preprocess_logits_for_metrics(measured.predictions, measured.labels);
  } else {
    measured.predictions = at::Tensor();
  }
  return measured;
}

}  // namespace gannet::detail
