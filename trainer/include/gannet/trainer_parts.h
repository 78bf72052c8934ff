/// The inputs of a Trainer in addition to the model and the arguments: data, loss, metrics,
/// callbacks, and replacements for parts of the Trainer.
#pragma once

#include <gannet/gannet.h>
#include <gannet/trainer_base.h>
#include <gannet/trainer_loss.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace gannet {

namespace detail {
template <class M>
struct TrainedModule {
  using type = typename decltype(module_pointer(std::declval<M>()))::element_type;
};
// first_samples returns the first `limit` samples of a dataset with random access; share_of returns
// one rank's share of a dataset.
loading::Source first_samples(loading::Source source, int64_t limit);
loading::Source share_of(loading::Source source, int64_t batch_size, int64_t rank, int64_t world_size);
std::optional<int64_t> samples_of(const loading::Source& source);  // nullopt for a stream
// Number of samples; -1 if there is no data set, nullopt for a stream.
template <class Batch>
std::optional<int64_t> samples_given(const Dataset<Batch>& data) {
  return data ? samples_of(data.source()) : std::optional<int64_t>(-1);
}
// The width that replaces "auto": the model's hidden_size(), or the corresponding member of its
// config(); nullopt if it has neither.
template <class Model>
std::optional<int64_t> hidden_size_of_model(const Model& model) {
  if constexpr (requires { int64_t{model.hidden_size()}; })
    return model.hidden_size();
  else if constexpr (requires { int64_t{model.config().hidden_size}; })
    return model.config().hidden_size;
  else if constexpr (requires { int64_t{model.config().n_embd}; })
    return model.config().n_embd;
  else if constexpr (requires { int64_t{model.config().d_model}; })
    return model.config().d_model;
  else
    return std::nullopt;
}
[[noreturn]] void fail_without_loss();
[[noreturn]] void fail_without_labels();
[[noreturn]] void fail_without(const char* dataset, const char* call);
[[noreturn]] void fail_probing_stream();
[[noreturn]] void fail_without_logits();
void warn_without_predictions();
// The number of elements in all tensors of a batch.
template <class Batch>
int64_t elements_of(Batch& batch) {
  int64_t elements = 0;
  loading::walk(batch, [&](at::Tensor& tensor) { elements += tensor.defined() ? tensor.numel() : 0; }, [](auto&) {});
  return elements;
}
}  // namespace detail

template <class Model, class Batch = Example>
struct TrainerParts {
  Dataset<Batch> train_dataset = {};
  Dataset<Batch> eval_dataset = {};
  Collate<Batch> data_collator = {};
  /// Computes metrics from the predictions of an evaluation; their names get the prefix "eval_".
  /// Called on every rank with the same tensors; the result of rank 0 is used on all ranks.
  std::function<Metrics(const EvalPrediction&)> compute_metrics = {};
  /// Reduces the logits to what compute_metrics needs of them, for example to an argmax over the
  /// vocabulary.
  std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels)> preprocess_logits_for_metrics = {};
  std::vector<TrainerCallback> callbacks = {};
  std::function<BatchLoss(Engine<Model>&, Batch&)> compute_loss = {};
  std::function<double(const Batch&)> count_items =
      {};  ///< default: labels other than -100; without labels 1, and in an evaluation the samples
  std::shared_ptr<torch::optim::Optimizer> optimizer = {};
  LrSchedule lr_scheduler = {};
  /// Build the program's own loaders from the Trainer's options. eval_loader is called with this
  /// rank's share, as rank 0 of 1. Without max_steps, train_loader is called a second time, as rank
  /// 0, for the length of the schedule.
  std::function<std::shared_ptr<DataLoader<Batch>>(const Dataset<Batch>&, const LoaderOptions&)> train_loader = {};
  std::function<std::shared_ptr<DataLoader<Batch>>(const Dataset<Batch>&, const LoaderOptions&)> eval_loader = {};
  /// Whether the engine only evaluates and predicts: there are no masters, gradients or optimizer
  /// states, and at ZeRO stage 3 the model may be larger than one device's memory. train() is then
  /// an error.
  bool inference = false;
  bool exit_when_stopped = true;  ///< false: train() returns after a signal, with output().stopped
  /// Adds files to each checkpoint (config.json, a vocabulary). Called on rank 0 with the
  /// checkpoint's folder before the checkpoint is in place, so that a killed run leaves no
  /// checkpoint without them.
  std::function<void(const std::string& folder)> checkpoint_files = {};
};

}  // namespace gannet
