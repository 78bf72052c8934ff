/// Pipelines: a model's layers are divided among stages, which are the ranks along the mesh's axis
/// `pipe`, and work on several micro-batches at a time.
///
///   auto net = gannet::pipe::Module(model, {.num_stages = 2, .loss_fn = [](at::Tensor logits, at::Tensor labels) {
///     return torch::nn::functional::cross_entropy(logits, labels);
///   }});
///   auto [engine, optimizer, loader, scheduler] =
///       gannet::initialize(net, {.config = "ds_config.json", .training_data = dataset});
///   for (int step = 0; step < steps; ++step) double loss = engine->train_batch();   // every rank calls it
///
/// train_batch() draws gradient_accumulation_steps micro-batches, runs forward and backward of all
/// of them through the stages, and takes one optimizer step. Parameters have the names that they
/// have in the whole model, whatever stage they are on, so that a checkpoint loads with any number
/// of stages (docs/pipeline.md).
#pragma once

#include <gannet/engine.h>
#include <gannet/initialize.h>
#include <gannet/layers.h>
#include <gannet/pipe_schedule.h>
#include <gannet/safetensors.h>
#include <gannet/topology.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet {

namespace pipeline {
class ChosenSchedule;
class Driver;
class Stage;
}  // namespace pipeline

namespace pipe {

/// A micro-batch: the inputs of the first layer, and the labels that the loss compares with the
/// last layer's results.
struct MicroBatch {
  Wire inputs, labels;
  /// Factor of the loss, in its gradient and in the mean that train_batch() and eval_batch()
  /// return. To weight micro-batches by their number of labels, set it to (labels of this
  /// micro-batch * micro-batches * ranks on the data axis) / labels of the whole batch.
  double weight = 1;
};

/// Converts a loader's batch. A batch with the members `data` and `target` (Example), and a pair or
/// a tuple of two values of tensors, are (inputs, labels). For a type of your own, write an
/// overload in its namespace.
inline MicroBatch to_micro_batch(MicroBatch batch) { return batch; }
template <class Batch>
  requires requires(const Batch& batch) {
    batch.data;
    batch.target;
  }
MicroBatch to_micro_batch(const Batch& batch) {
  MicroBatch made;
  gannet::detail::OnWire<std::decay_t<decltype(batch.data)>>::give(made.inputs, batch.data);
  gannet::detail::OnWire<std::decay_t<decltype(batch.target)>>::give(made.labels, batch.target);
  return made;
}
template <class Batch>
  requires(requires(const Batch& batch) {
    std::get<0>(batch);
    std::get<1>(batch);
  } && std::tuple_size_v<Batch> == 2)
MicroBatch to_micro_batch(const Batch& batch) {
  MicroBatch made;
  gannet::detail::OnWire<std::tuple_element_t<0, Batch>>::give(made.inputs, std::get<0>(batch));
  gannet::detail::OnWire<std::tuple_element_t<1, Batch>>::give(made.labels, std::get<1>(batch));
  return made;
}

/// Whether a loader's batch can be converted, by one of these or by an overload of the program.
template <class Batch>
concept ConvertibleToMicroBatch = requires(const Batch& batch) {
  { to_micro_batch(batch) } -> std::same_as<MicroBatch>;
};

/// Returns the next micro-batch, or nullopt at the end of the data.
using Source = std::function<std::optional<MicroBatch>()>;

namespace detail {
template <class T>
std::optional<MicroBatch> next_of(T& from) {
  if constexpr (requires { from.next(); }) {
    return to_micro_batch(from.next());
  } else {
    auto batch = from();
    if constexpr (requires { batch.has_value(); }) {
      if (!batch) return std::nullopt;
      return to_micro_batch(std::move(*batch));
    } else {
      return to_micro_batch(std::move(batch));
    }
  }
}
}  // namespace detail

/// Makes a Source from a function that returns a batch or an optional batch, or from an object with
/// next() such as RepeatingLoader or a Trial's iterator. An lvalue is
/// captured by reference, so that the next call continues where this one ended; it must outlive the
/// Source.
template <class T>
Source source_of(T&& from) {
  using Plain = std::remove_reference_t<T>;
  constexpr bool kHasNext = requires(Plain& one) { one.next(); };
  static_assert(kHasNext || std::invocable<Plain&>,
                "data for a pipeline comes from a function or from an object with next(): make a RepeatingLoader of a loader");
  if constexpr (std::is_lvalue_reference_v<T>) {
    return [&from]() -> std::optional<MicroBatch> { return detail::next_of(from); };
  } else {
    return [own = std::make_shared<Plain>(std::move(from))]() -> std::optional<MicroBatch> { return detail::next_of(*own); };
  }
}

/// Computes the loss of a micro-batch, a tensor of one element, from the last layer's results and
/// the labels: a function of tensors, with its parameter types written out.
class Loss {
 public:
  Loss() = default;
  template <class Function>
    requires(!std::is_same_v<std::decay_t<Function>, Loss>)
  Loss(Function loss)  // NOLINT(google-explicit-constructor): options take a plain lambda
      : layer_(function("loss_fn", std::move(loss))) {}
  explicit operator bool() const { return layer_.has_value(); }
  at::Tensor operator()(const Wire& outputs, const Wire& labels) const;

 private:
  std::optional<Layer> layer_;
};

namespace detail {
// The loss of a model that has pipeline_loss(): a function of its tensors.
template <class Model, class Class, class Result, class... A>
auto loss_of(const std::shared_ptr<Model>& model, Result (Class::*loss)(A...) const) {
  return [model, loss](A... tensors) -> at::Tensor { return (model.get()->*loss)(tensors...); };
}
template <class Model, class Class, class Result, class... A>
auto loss_of(const std::shared_ptr<Model>& model, Result (Class::*loss)(A...)) {
  return [model, loss](A... tensors) -> at::Tensor { return (model.get()->*loss)(tensors...); };
}
template <class Model>
concept HasLoss = requires(const std::shared_ptr<Model>& model) { loss_of(model, &Model::pipeline_loss); };
}  // namespace detail

struct Options {
  std::optional<uint32_t> num_stages = {};       ///< null: the topology's, the config's (pipeline.stages, gannet.mesh.pipe), or 1
  std::optional<ProcessTopology> topology = {};  ///< the layout of the ranks, in place of num_stages
  Loss loss_fn = {};                             ///< default: the model's pipeline_loss(), or the last layer's result
  /// "uniform", "parameters" or "type:REGEX" (layers whose class name matches); "time" or "memory",
  /// which measure `sample`; null: the config's pipeline.partition, or "parameters".
  std::optional<std::string> partition_method = {};
  /// A micro-batch of the usual size. Rank 0 runs each layer with it, one at a time, for the partition methods
  /// "time" (minimizes the time of the slowest stage) and "memory" (minimizes the memory of the largest stage).
  std::optional<MicroBatch> sample = {};
  /// The first layer of each stage, and the number of layers: {0, 3, 8}. Overrides partition_method. With several
  /// chunks per stage: the first layer of each chunk, in the order of the layers, and the number of layers.
  std::vector<size_t> bounds = {};
  /// Chunks of layers on each stage for the schedules "interleaved" and "interleaved-zb" (the config's
  /// `gannet.pipeline.schedule`); null: 2. zb-v and dualpipe-v have 2 chunks, other schedules 1.
  std::optional<uint32_t> chunks = {};
  /// The program's own schedule, in place of the config's (gannet/pipe_schedule.h).
  MakeSchedule schedule = {};
  /// Sets the random seed before each layer of each micro-batch, so that dropout does not depend on
  /// the number of stages: base_seed * (number of the micro-batch in the run + 1) + number of the
  /// layer + a constant times the rank along data.
  bool seed_layers = false;
  int64_t base_seed = 1234;
  std::function<void(uint64_t)> seed_fn = {};  ///< in place of torch::manual_seed
  /// The number of layers in a region of activation checkpointing (docs/activation.md); 0: the
  /// config's gannet.activation_checkpointing applies.
  int64_t activation_checkpoint_interval = 0;
};

/// A model as a list of layers. initialize divides the list among the stages, once the ranks are
/// known; from then on the module has the parameters of this rank's stage, and the parameters of
/// other stages have released their memory, or were never built (gannet/lazy.h). Before that it has
/// no parameters: freeze and convert those of the model itself.
class ModuleImpl : public torch::nn::Module {
 public:
  /// The layers' names are the prefixes of the parameters' names. Throws Error(kConfig) on an empty
  /// list, on two layers of the same name, and on stage counts that are 0 or contradict each other.
  explicit ModuleImpl(std::vector<Layer> layers, Options options = {});
  /// The layers of `model`; the parameters keep their names in the model.
  ModuleImpl(std::shared_ptr<torch::nn::Module> model, std::vector<Layer> layers, Options options = {});
  /// A model with pipeline_layers() (preferred) or layers(), which map its inputs to what loss_fn
  /// takes. If it has pipeline_loss(outputs, labels), a single function of tensors, that is the
  /// default of loss_fn. The models of gannet/models have both.
  template <class Model>
    requires(
        requires(Model& model) { model.layers(); } || requires(Model& model) { model.pipeline_layers(); })
  explicit ModuleImpl(const std::shared_ptr<Model>& model, Options options = {})
      : ModuleImpl(model, layers_of_model(*model), with_loss_of(model, std::move(options))) {}
  template <class Model>
  explicit ModuleImpl(const torch::nn::ModuleHolder<Model>& model, Options options = {})
      : ModuleImpl(model.ptr(), std::move(options)) {}
  explicit ModuleImpl(const std::shared_ptr<torch::nn::SequentialImpl>& model, Options options = {});
  ~ModuleImpl() override;

  const Options& options() const { return options_; }
  /// Calls `visit` with every module of all stages and its name in the whole model, in order. Lazy
  /// modules are built for it one by one, and released. Throws Error(kOrder) after initialize.
  void visit_modules(const std::function<void(const std::string& name, const torch::nn::Module& module)>& visit) const;
  size_t layer_count() const { return bounds_.empty() ? layers_.size() : bounds_.back(); }
  /// The first layer of each stage (of each chunk, in the order of the layers), and the number of
  /// layers; known after initialize.
  const std::vector<size_t>& bounds() const { return bounds_; }

  void train(bool on = true) override;  ///< also sets the mode of the whole model, which layers may read

 private:
  friend class pipeline::Driver;
  friend class pipeline::Stage;
  template <class Model>
  static std::vector<Layer> layers_of_model(Model& model) {
    if constexpr (requires { model.pipeline_layers(); })
      return model.pipeline_layers();
    else
      return model.layers();
  }
  template <class Model>
  static Options with_loss_of(const std::shared_ptr<Model>& model, Options options) {
    if constexpr (detail::HasLoss<Model>)
      if (!options.loss_fn) options.loss_fn = detail::loss_of(model, &Model::pipeline_loss);
    return options;
  }

  std::shared_ptr<torch::nn::Module> model_;  // null: a plain list of layers
  std::vector<Layer> layers_;
  Options options_;
  std::vector<size_t> bounds_;
  std::vector<int64_t> trained_;                        // trained elements of each stage
  std::shared_ptr<pipeline::ChosenSchedule> schedule_;  // null: before initialize
};

class Module : public torch::nn::ModuleHolder<ModuleImpl> {
 public:
  using torch::nn::ModuleHolder<ModuleImpl>::ModuleHolder;
  explicit Module(std::vector<Layer> layers, Options options = {})
      : ModuleHolder(std::make_shared<ModuleImpl>(std::move(layers), std::move(options))) {}
  template <class Model>
  explicit Module(const Model& model, Options options) : ModuleHolder(std::make_shared<ModuleImpl>(model, std::move(options))) {}
};

struct EvalOptions {
  enum class Reduce { kMean, kNone };
  Reduce reduce_output = Reduce::kMean;           ///< kMean: the mean over micro-batches and the ranks of the data axis
  bool compute_loss = true;                       ///< without it, only the results of the last layer are computed
  bool return_logits = false;                     ///< keep the results of the last layer, on the last stage
  bool bcast_loss = true;                         ///< broadcast the losses to all stages; false: only the last stage has them
  std::optional<int64_t> num_micro_batches = {};  ///< default: gradient_accumulation_steps
};

struct EvalResult {
  std::optional<double> loss;  ///< the mean; null without a loss, and on ranks that do not know it
  std::vector<double> losses;  ///< with kNone: the loss of each micro-batch of this rank
  std::vector<Wire> logits;    ///< the last layer's results of each micro-batch; on the last stage only
};

}  // namespace pipe

/// The engine of a pipeline. It trains only through train_batch(): forward(), backward() and step()
/// throw Error(kOrder). Everything else is as for other engines: checkpoints, learning rates,
/// values by name (of this stage's parameters).
template <>
class Engine<pipe::ModuleImpl> : public EngineBase {
 public:
  Engine(std::shared_ptr<pipe::ModuleImpl> module, const EngineOptions& options);
  ~Engine();

  /// Takes one step with the next gradient_accumulation_steps micro-batches of `source`, or of
  /// set_dataiterator(), or of initialize's training_data. The first and the last stage draw them,
  /// each from its own source. The sources must agree: labels in host memory are compared by value,
  /// others by shape. The other stages draw none. Returns the mean of
  /// the losses over micro-batches and ranks, the same on every rank. Throws on every rank, with
  /// nothing changed, Error(kNotFound) if the data runs out, and Error(kMismatch) if the first
  /// and the last stage draw different labels. Any other exception ends the step on all ranks:
  /// start the ranks again and load the newest checkpoint.
  double train_batch() { return run_train_batch({}); }
  template <class Source>
  double train_batch(Source&& source) {
    return run_train_batch(pipe::source_of(std::forward<Source>(source)));
  }
  /// Whether the schedule exists for a step of this many micro-batches. All ranks get the same answer.
  /// Throws Error(kConfig) for the program's own schedule if it is invalid at this size.
  bool has_schedule_for(int64_t micro_batches) const;
  /// Result of the last train_batch(): `applied` is false for a skipped step, as `reason` explains.
  const StepResult& last_step() const;
  /// Evaluates micro-batches in evaluation mode and without gradients, and restores the mode.
  pipe::EvalResult eval_batch() { return run_eval_batch({}, {}); }
  template <class Source>
  pipe::EvalResult eval_batch(Source&& source, const pipe::EvalOptions& options = {}) {
    return run_eval_batch(pipe::source_of(std::forward<Source>(source)), options);
  }

  /// Sets the default source of train_batch() and eval_batch(): anything that they accept, or a
  /// pointer to a loader, which then repeats forever.
  template <class Source>
  void set_dataiterator(Source&& source) {
    if constexpr (requires { source->begin(); })
      source_ = pipe::source_of(RepeatingLoader(source));
    else
      source_ = pipe::source_of(std::forward<Source>(source));
  }
  /// Sets a function that is applied to each micro-batch after it is drawn.
  void set_batch_fn(std::function<pipe::MicroBatch(pipe::MicroBatch)> function) { batch_fn_ = std::move(function); }
  /// Called by initialize. Batches that to_micro_batch() cannot convert need set_dataiterator().
  template <class Loader>
  void set_dataloader(const std::shared_ptr<Loader>& loader) {
    if constexpr (pipe::ConvertibleToMicroBatch<std::decay_t<decltype(*loader->begin())>>) set_dataiterator(loader);
  }

  /// Saves the weights as one file for each layer, `folder`/layer_<number>-model_states.safetensors,
  /// with the layer's number in the whole model. The files load with any number of stages, and a
  /// layer's tensors have their names in the whole model:
  ///   engine->save_state_dict("layers");
  ///   std::map<std::string, at::Tensor> block = load_safetensors("layers/layer_03-model_states.safetensors");
  /// The files have parameters and buffers in the dtypes of training; only save_checkpoint() saves
  /// masters, optimizer states and counters. At every ZeRO stage, the first rank of each pipeline
  /// stage's data axis writes the files; a layer without tensors has none, and a tied tensor is in the
  /// file of each of its layers. Throws on every rank: Error(kIo) if a file cannot be written, and
  /// Error(kUnsupported) if ranks have different experts. Each file is written completely or not at
  /// all; after an error some may be new and others old, which load_state_dir() refuses.
  void save_state_dict(const std::string& folder);
  /// Loads the files of save_state_dict() into parameters, masters and buffers; optimizer states
  /// stay as they are. Every rank reads the files of its own layers. Without `strict`, names may be
  /// missing on either side. Throws on every rank, with nothing changed: Error(kNotFound) without a
  /// layer's file, Error(kCorrupt) for a damaged one, and Error(kMismatch) for different names or shapes,
  /// a different number of layers, files of different steps, and a tied tensor with two values.
  void load_state_dir(const std::string& folder, bool strict = true);
  /// The file of this stage's layer `local_layer`, counted from 0. With several ranks along `tensor`
  /// each has its own, layer_<number>-model_<rank>-model_states.safetensors. Throws Error(kArgument)
  /// if the stage has no such layer.
  std::string ckpt_layer_path(const std::string& folder, size_t local_layer) const;
  /// This stage's parameters and buffers by their names in the whole model, as full copies in host
  /// memory, on every rank of the stage. All ranks of all stages call it. (DeepSpeed's version
  /// writes files and returns None.)
  NamedTensors module_state_dict();
  /// Sets parameters, masters and buffers to the values of a module_state_dict(), which must be the
  /// same on all ranks of the stage. All ranks of all stages call it. `strict` and errors are those
  /// of load_state_dir().
  void load_module_state_dict(const NamedTensors& state, bool strict = true);

  bool is_first_stage() const;
  bool is_last_stage() const;
  uint32_t stage_id() const;
  uint32_t num_stages() const;
  ProcessTopology topology() const;
  const std::shared_ptr<pipe::ModuleImpl>& module() const { return module_; }

 private:
  double run_train_batch(pipe::Source source);
  pipe::EvalResult run_eval_batch(pipe::Source source, const pipe::EvalOptions& options);
  pipe::Source prepared(pipe::Source source) const;

  std::shared_ptr<pipe::ModuleImpl> module_;
  pipe::Source source_;
  std::function<pipe::MicroBatch(pipe::MicroBatch)> batch_fn_;
  std::unique_ptr<pipeline::Driver> driver_;
};

using PipelineEngine = Engine<pipe::ModuleImpl>;

}  // namespace gannet
