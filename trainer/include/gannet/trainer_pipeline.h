/// Pipeline training in the Trainer (docs/trainer.md, docs/pipeline.md), for a pipe::Module, or for
/// a model with layers() or pipeline_layers() if the config asks for stages.
#pragma once

#include <gannet/data.h>
#include <gannet/pipe.h>
#include <gannet/trainer_loss.h>

#include <algorithm>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet::detail {

template <class Model>
constexpr bool is_pipe_module() {
  return std::same_as<Model, pipe::ModuleImpl>;
}
template <class Model>
concept HasLayers = requires(Model& model) { model.layers(); } || requires(Model& model) { model.pipeline_layers(); };

[[noreturn]] void fail_without_decoder_labels();
[[noreturn]] void fail_without_layers();
[[noreturn]] void fail_without_micro_batch();
[[noreturn]] void fail_without_pipeline_loss();
[[noreturn]] void fail_with_pipeline_loss();
[[noreturn]] void fail_with_smoothing();
[[noreturn]] void fail_with_some_labels();
[[noreturn]] void fail_with_pipeline_engine(bool is_pipeline);

// Whether this rank is the first along the tensor axis; ranks along it have the same results.
bool is_first_of_replicas(const PipelineEngine& engine);

// A model with a decoder that also reads the labels gets them as its second input.
template <class Model, class Batch>
constexpr bool reads_labels() {
  return HasLogitsOfLabels<Model, Batch> && !HasLogits<Model, Batch> && !ForwardsData<Model, Batch>;
}

// A model whose batches have names says which of them are inputs and labels.
template <class Model, class Batch>
concept MakesMicroBatch = requires(const Model& model, const Batch& batch) {
  { model.micro_batch(batch) } -> std::same_as<pipe::MicroBatch>;
};
// A model that computes the loss of its batch, as a whole and as a pipeline: it needs no compute_loss.
template <class Model, class Batch>
concept ForwardsLoss = MakesMicroBatch<Model, Batch> && pipe::detail::HasLoss<Model> && requires(Model& model, Batch& batch) {
  { model.forward(batch) } -> std::same_as<at::Tensor>;
};

// Converts a batch to a micro-batch and multiplies its weight by `weight`. Floating-point tensors
// are cast to `dtype`. `some_count`: whether any of its labels counts.
template <class Model, class Batch>
pipe::MicroBatch micro_batch_of(const Model& model, const Batch& batch, const std::optional<at::ScalarType>& dtype,
                                bool some_count = true, double weight = 1) {
  if constexpr (pipe::ConvertibleToMicroBatch<Batch> || MakesMicroBatch<Model, Batch>) {
    pipe::MicroBatch made = [&] {
      if constexpr (MakesMicroBatch<Model, Batch>) {
        return model.micro_batch(batch);
      } else {
        using pipe::to_micro_batch;
        return to_micro_batch(batch);
      }
    }();
    if (HasDataAndTarget<const Batch> || (made.labels.size() == 1 && !some_count))
      made.labels[0] = usable_labels(made.labels[0], some_count);
    if constexpr (HasDataAndTarget<const Batch> && reads_labels<Model, Batch>()) {
      if (!batch.target.defined()) fail_without_decoder_labels();
      made.inputs.push_back(made.labels[0]);
    }
    for (Wire* const tensors : {&made.inputs, &made.labels})
      for (at::Tensor& tensor : *tensors) tensor = as_input(tensor, dtype);
    made.weight *= weight;
    return made;
  } else {
    fail_without_micro_batch();
  }
}

// A micro-batch of the data set's first samples, in order; null: there are none.
template <class Model, class Batch>
std::optional<pipe::MicroBatch> first_micro_batch(const Model& model, const Dataset<Batch>& data, const Collate<Batch>& collate,
                                                  int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = false;
  options.workers = 0;
  const auto loader = make_loader<Batch>(data, collate, options);
  auto first = loader->begin();
  if (first == loader->end()) return std::nullopt;
  const Batch batch = std::move(*first);
  return micro_batch_of<Model>(model, batch, std::nullopt);
}

// The loss for a model's logits: the model's own, else cross entropy, as without a pipeline.
template <class Model, class Batch>
pipe::Options pipeline_options(const std::shared_ptr<Model>& model, double smoothing) {
  pipe::Options options;
  constexpr bool kHasLossOfLogits = requires(const at::Tensor& one) {
    { model->loss_of_logits(one, one) } -> std::convertible_to<at::Tensor>;
  };
  if constexpr (ForwardsLoss<Model, Batch>) {
    return options;  // the Trainer's constructor refuses label smoothing
  } else if constexpr (pipe::detail::HasLoss<Model>) {
    if (smoothing == 0) return options;
  } else if constexpr (ForwardsBoth<Model, Batch> && !kHasLossOfLogits) {
    if (smoothing == 0) fail_without_pipeline_loss();  // forward(data, target) computes a loss of its own
  }
  options.loss_fn = [model, smoothing](const at::Tensor& outputs, const at::Tensor& labels) {
    const at::Tensor logits = shifts_labels<Model>() ? predicting_logits(outputs) : outputs;
    if constexpr (kHasLossOfLogits)
      if (smoothing == 0) return at::Tensor(model->loss_of_logits(logits, labels));
    const at::Tensor wanted = shifts_labels<Model>() ? predicted_labels(labels) : labels;
    return summed_loss(logits, wanted, smoothing) / std::max<int64_t>(1, count_labels(wanted));
  };
  return options;
}

}  // namespace gannet::detail
