/// The context of a trial: its hyperparameters, the ranks, and the registration of engines and
/// reducers.
///
///   explicit MyTrial(gannet::TrialContext& context) : context_(context) {
///     const auto& hparams = context.get_hparams();
///     auto model = std::make_shared<Net>(hparams.get<int64_t>("width"));
///     auto config = gannet::overwrite_deepspeed_config(hparams.get<gannet::Value>("deepspeed_config"),
///                                                      hparams.get<gannet::Dict>("overwrite_deepspeed_args", {}));
///     engine_ = context.wrap_model_engine(gannet::initialize(model, {.config = config}).engine);
///   }
///
/// The process group exists before the trial is constructed. A registered engine is switched
/// between training and evaluation mode, and is saved and restored with its optimizer and schedule.
/// A trial may register several engines with equal micro-batch sizes and accumulation steps.
#pragma once

#include <gannet/gannet.h>
#include <gannet/hparams.h>
#include <gannet/trial_metrics.h>
#include <gannet/trial_settings.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

/// Makes a config from a path, JSON text or a dictionary, with `arguments` merged over it
/// recursively. Throws Error(kArgument) if `base` is something else.
Config overwrite_deepspeed_config(const Value& base, const Dict& arguments);

namespace detail {
struct ShareOfSamples {
  loading::Source source;
  int64_t samples;
};
// The samples rank, rank + ranks, ... of a dataset with random access; for a stream, the stream
// unchanged, and -1 as the number of samples.
ShareOfSamples validation_share(loading::Source source, int64_t rank, int64_t ranks);
}  // namespace detail

class TrialContext {
 public:
  TrialContext(TrialSettings settings, std::shared_ptr<ProcessGroup> world);
  TrialContext(const TrialContext&) = delete;

  // ---- hyperparameters
  const Hparams& get_hparams() const { return settings_.hparams; }
  template <class T = Value>
  T get_hparam(const std::string& name) const {
    return settings_.hparams.get<T>(name);
  }
  /// Applies overwrite_deepspeed_config to the hyperparameters deepspeed_config and
  /// overwrite_deepspeed_args, which combine a file, --hparam, --deepspeed_config and --set. Throws
  /// Error(kArgument) if none of them gives a config.
  Config deepspeed_config() const;

  // ---- engines
  /// Registers an engine and returns it. The first one determines the number of micro-batches in a
  /// batch and the device of the batches. `name` is the engine's folder in checkpoints; the default
  /// is "engine", then "engine_1" ... With a PipelineEngine, train_batch is called once per batch,
  /// as after disable_auto_grad_accumulation(): engine->train_batch(iterator) is a whole step.
  template <class Model>
  std::shared_ptr<Engine<Model>> wrap_model_engine(std::shared_ptr<Engine<Model>> engine, const std::string& name = "") {
    add_engine(engine, name);
    return engine;
  }
  /// Sets the program's own partition of the ranks, for loaders and metrics. Pass it to
  /// `initialize` as .mpu as well.
  std::shared_ptr<const Mpu> wrap_mpu(std::shared_ptr<const Mpu> mpu);
  /// Moves all tensors of a batch, including nested ones, to the first engine's device.
  template <class Batch>
  Batch to_device(Batch batch) const {
    return gannet::to_device(std::move(batch), device());
  }
  at::Device device() const;
  /// Makes train_batch run once per batch; it must then accumulate gradients itself.
  void disable_auto_grad_accumulation() { accumulates_ = false; }
  /// Allows a training loader that does not distribute its samples over the ranks.
  void disable_dataset_reproducibility_checks() { checks_loader_ = false; }

  // ---- loaders
  LoaderOptions loader_options() const;             ///< for the training loader: batch size, shuffling, this rank's share, device
  LoaderOptions validation_loader_options() const;  ///< the same, but in the order of the dataset and with no sample dropped
  /// Makes a loader of this rank's share of a dataset, in which each sample occurs once over all
  /// ranks, whereas plain loaders repeat the first samples to give every rank the same number.
  /// Throws Error(kArgument) if there are fewer samples than ranks.
  template <class Batch = Example>
  std::shared_ptr<DataLoader<Batch>> make_validation_loader(const Dataset<Batch>& dataset,
                                                            const Collate<Batch>& collate = {}) const {
    LoaderOptions options = validation_loader_options();
    auto share = detail::validation_share(dataset.source(), options.rank, options.world_size);
    options.rank = 0;
    options.world_size = 1;
    return make_loader<Batch>(Dataset<Batch>(std::move(share.source)), collate, options);
  }

  // ---- metrics
  template <class Reducer>
    requires std::derived_from<Reducer, MetricReducer>
  std::shared_ptr<Reducer> wrap_reducer(std::shared_ptr<Reducer> reducer, const std::string& name = "", ReducerUse use = {}) {
    add_reducer(reducer, name, use);
    return reducer;
  }
  /// Without a name, the function must return a dictionary; each of its numbers is a metric.
  std::shared_ptr<FunctionReducer> wrap_reducer(std::function<Value(const List& values)> function, const std::string& name = "",
                                                ReducerUse use = {});

  // ---- progress
  /// Whether train_batch's current batch is the first or the last of an epoch. Always false for a
  /// stream without --epoch_length.
  bool is_epoch_start() const { return is_epoch_start_; }
  bool is_epoch_end() const { return is_epoch_end_; }
  int64_t current_train_batch() const { return batch_; }  ///< the same as the argument of train_batch
  int64_t current_train_epoch() const { return epoch_; }
  int64_t get_initial_batch() const { return initial_batch_; }  ///< the first batch of this process; above 0 after a resume
  /// Makes the trial end after this batch, with a last validation and a checkpoint. One rank's
  /// request is enough.
  void set_stop_requested(bool requested = true) { stop_requested_ = requested; }
  bool get_stop_requested() const { return stop_requested_; }

  int64_t get_train_micro_batch_size_per_gpu() const;  ///< number of samples in a micro-batch of one rank
  int64_t get_num_micro_batches_per_slot() const;      ///< number of train_batch calls per batch
  int64_t get_global_batch_size() const;               ///< number of samples in a batch of all ranks
  int64_t get_trial_seed() const { return settings_.seed; }
  const std::string& get_output_dir() const { return settings_.output_dir; }
  const std::shared_ptr<ProcessGroup>& distributed() const { return world_; }
  uint32_t rank() const { return world_->rank(); }
  uint32_t size() const { return world_->size(); }

 private:
  friend class TrialRunner;
  int64_t micro_batches_in_batch() const;  // a pipeline's accumulation steps, else the train_batch calls per batch
  struct WrappedEngine {
    std::string name;
    std::shared_ptr<EngineBase> engine;
  };
  struct Reducing {
    std::string name;
    std::shared_ptr<MetricReducer> reducer;
    ReducerUse use;
  };
  void add_engine(std::shared_ptr<EngineBase> engine, const std::string& name);
  void add_reducer(std::shared_ptr<MetricReducer> reducer, const std::string& name, ReducerUse use);
  EngineBase& first(const char* asked) const;

  TrialSettings settings_;
  std::shared_ptr<ProcessGroup> world_;
  std::vector<WrappedEngine> engines_;
  std::vector<Reducing> reducers_;
  std::shared_ptr<const Mpu> mpu_;
  bool accumulates_ = true, checks_loader_ = true;
  bool is_epoch_start_ = false, is_epoch_end_ = false, stop_requested_ = false;
  bool is_constructed_ = false;
  int64_t batch_ = 0, epoch_ = 0, initial_batch_ = 0;
};

}  // namespace gannet
