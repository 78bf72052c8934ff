/// The engine: one model, its optimizer, and the steps that train it.
///
///   auto loss = engine->forward(batch.data, batch.target);   // the model's own forward
///   engine->backward(loss);
///   if (auto done = engine->step(); done.boundary && !done.applied) std::cerr << done.reason << '\n';
///
/// forward, backward and step are called once per micro-batch; every gradient_accumulation_steps-th
/// step() is a boundary and updates the parameters. An engine is used by one thread at a time: a
/// call that is made while another thread is in a call throws Error(kOrder), which names both
/// calls. Engine<Model> is a typed wrapper of EngineBase, which is compiled in the core.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <gannet/checkpoint.h>
#include <gannet/distributed.h>
#include <gannet/engine_values.h>
#include <gannet/error.h>
#include <gannet/optimizer_handle.h>
#include <gannet/value.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
class SequentialImpl;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}

namespace gannet {

class Config;
class ResumableLoader;
struct LoaderOptions;

/// Options that initialize passes to the engine, independent of the batch's type.
struct EngineOptions;

class EngineBase {
 public:
  EngineBase(std::shared_ptr<torch::nn::Module> module, const EngineOptions& options);
  virtual ~EngineBase();
  EngineBase(const EngineBase&) = delete;
  EngineBase& operator=(const EngineBase&) = delete;

  /// Adds the gradients of `loss` (one element, with a graph) to the engine's buffers, scaled by
  /// the loss scale and divided by gradient_accumulation_steps; at a boundary they are averaged
  /// over ranks while backward still runs. It may be called several times before step(). Throws
  /// Error(kOrder) without a preceding forward, Error(kNonFinite) on a NaN loss that no loss scale
  /// could correct.
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});
  /// Returns `loss` times the loss scale, divided by gradient_accumulation_steps. It is for a
  /// program that calls LibTorch's backward itself, as it must with several roots. A backward
  /// through the result counts as this engine's, like backward(loss); it must run on the thread
  /// that called scale(). Throws the errors of backward().
  ///   torch::autograd::backward({engine->scale(loss), engine->scale(penalty)}, {});
  ///   engine->step();
  ///
  /// Where the gradients are: this engine's backward moves each gradient into the engine's buffers
  /// and leaves `.grad` defined but without values: reading it throws. Read and write gradients with
  /// full_gradient, for_each_gradient and set_full_gradient. Any other backward (a loss.backward(),
  /// another engine's) leaves its gradients in `.grad`, where PyTorch puts them. If step() finds
  /// such gradients, which plain LibTorch would add, it throws Error(kOrder) naming the parameter.
  at::Tensor scale(const at::Tensor& loss, const BackwardOptions& options = {});
  /// Averages the gradients over ranks now; by default backward does so itself.
  void allreduce_gradients();
  /// Ends the micro-batch. At a boundary it checks and clips the gradients, and updates the
  /// parameters.
  StepResult step();

  /// Steps with two passes. Some optimizers need a step's gradient at parameters other than those
  /// that they update (SAM), or need a second gradient, from a different loss (Sophia). The step's
  /// micro-batches are then run again, and the earlier pass ends with perturb() or
  /// keep_second_gradient() instead of step():
  ///   engine->backward(loss(engine->forward(batch.data)));
  ///   engine->perturb();                                     // the model is at w + e(w)
  ///   engine->backward(loss(engine->forward(batch.data)));
  ///   engine->step();                                        // at w again, updated with the gradient at w + e(w)
  ///
  /// perturb() checks the gradient and moves the parameters as the optimizer specifies, on all
  /// ranks and in every copy. The gradients then start from zero. step() restores the parameters,
  /// bit for bit, before it updates. Between the two, save_checkpoint, load_checkpoint, eval(),
  /// swap_optimizer, and all other calls that write or export parameters, are Error(kOrder). In the
  /// result, `applied` is true if the parameters were moved. If the gradient is not finite and
  /// such steps are skipped, nothing is moved, and the step() that follows is skipped; the program
  /// need not check. Without perturb() the step is an ordinary one. Every rank must call perturb().
  /// Throws Error(kUnsupported) if the optimizer has no perturbation. Perturbing needs as much
  /// additional memory as the masters.
  StepResult perturb();
  /// Whether the current step needs a second gradient. The same on every rank.
  bool wants_second_gradient() const;
  /// Keeps the averaged, unscaled gradient of this pass for the update of this step:
  ///   if (engine->wants_second_gradient()) {
  ///     engine->backward(sampled_loss(engine->forward(batch.data)));
  ///     engine->keep_second_gradient();
  ///   }
  ///   engine->backward(loss(engine->forward(batch.data)));
  ///   engine->step();
  /// A gradient that is not finite is treated as by perturb(). Throws Error(kOrder) if this step
  /// needs no second gradient; if it needs one, step() throws Error(kOrder) without this call.
  /// Every rank must call it. Until step() it uses as much additional memory as the masters.
  StepResult keep_second_gradient();
  /// Restarts the current step: restores what perturb() moved, and drops the step's gradients. It
  /// is for a program that does not finish a step with two passes. (After an exception in a later
  /// pass, only that pass restarts.) Every rank calls it.
  void abandon_step();

  bool is_gradient_accumulation_boundary() const;
  /// Overrides the result of is_gradient_accumulation_boundary until it is called with nullopt.
  void set_gradient_accumulation_boundary(std::optional<bool> is_boundary);
  /// Drops the gradients accumulated so far, and `.grad` of the trained parameters: the next
  /// micro-batch is the first of its step.
  void zero_grad();
  /// Sets the module's training mode. If the engine evaluates with weights that differ from the
  /// trained ones (Schedule-Free; the moving average of gannet.ema; local steps, see
  /// parameters_differ), eval() puts the evaluation weights into the model, for forward,
  /// fp32_parameters, save_16bit_model and all other readers, and train() restores the trained
  /// ones, bit for bit. Every rank must then call both, between two steps; backward, step,
  /// save_checkpoint and load_checkpoint before train() are Error(kOrder). Until train() this uses
  /// as much additional memory as the fp32 masters.
  ///   engine->eval();
  ///   { torch::NoGradGuard no_grad; report(engine->forward(batch.data, batch.target)); }
  ///   engine->train();
  void train(bool on = true);
  void eval() { train(false); }
  /// Whether the ranks have different parameters now: after a local step of an optimizer that
  /// averages them from time to time (ZeroOneAdam). The weights to use then, which are the same on
  /// all ranks, are provided by fp32_parameters, full_fp32_parameter, save_16bit_model,
  /// save_fp32_model and eval(); checkpoints have both. In this state, writing parameters from the
  /// program and swap_optimizer are Error(kOrder). The same on every rank.
  bool parameters_differ() const;

  /// Turns on activation checkpointing, from the next forward on, for a model that runs its layers
  /// by run_layers (gannet/layers.h). The config's number_checkpoints, interval or memory_limit
  /// apply; without them each layer is a region. Checkpointing is on from the start if the config
  /// has one of these keys. Losses and parameters are unchanged, bit for bit. Every rank must
  /// call it. Regions that the program makes itself by checkpointing::checkpoint do not change.
  void gradient_checkpointing_enable();
  void gradient_checkpointing_disable();
  bool is_gradient_checkpointing() const;

  std::vector<double> get_lr() const;  ///< the learning rate of each group, for the next update
  void set_lr(double lr);              ///< sets the learning rate of all groups; a schedule replaces it after the next update
  /// 2-norm of the full gradient at the last boundary, averaged and unscaled, before clipping;
  /// nullopt before the first boundary, and after a skipped one.
  std::optional<double> get_global_grad_norm() const;
  double loss_scale() const;
  bool was_step_applied() const;
  int64_t global_steps() const;  ///< boundaries passed, skipped ones included
  int64_t skipped_steps() const;
  int64_t micro_steps() const;
  int64_t global_samples() const;

  int64_t train_batch_size() const;
  int64_t train_micro_batch_size_per_gpu() const;
  int64_t gradient_accumulation_steps() const;
  /// Changes gradient_accumulation_steps; Error(kArgument) unless `samples` is a positive multiple of
  /// micro-batch times ranks. Between two micro-batches of one step, the change takes effect with the next step.
  void set_train_batch_size(int64_t samples);
  void set_train_micro_batch_size(int64_t samples);

  /// While a NoSync exists, backward does not average over ranks, and step() is an error.
  class NoSync {
   public:
    explicit NoSync(EngineBase& engine);
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    EngineBase& engine_;
  };
  NoSync no_sync() { return NoSync(*this); }

  at::Device device() const;
  uint32_t rank() const;        ///< rank along the data axis; selects this rank's share of each batch
  uint32_t world_size() const;  ///< number of ranks with their own data
  const std::shared_ptr<ProcessGroup>& process_group() const;
  double mean(double value);                             ///< the mean over ranks; every rank calls it
  std::vector<double> mean(std::vector<double> values);  ///< the mean of each number, in one collective; same size on every rank
  /// Returns every rank's bytes, by rank; their sizes may differ. Every rank must call it. It
  /// is meant for the program's measurements, not for training.
  std::vector<std::string> gather(const std::string& bytes);

  /// Names and fp32 values of the trained parameters: the masters of 16-bit training, else the
  /// parameters themselves. Every rank must call it: sharded masters are gathered, and the result
  /// occupies the memory of all of them.
  std::vector<std::pair<std::string, at::Tensor>> fp32_parameters();
  /// The contents of a checkpoint of weights: the values of fp32_parameters(), the frozen
  /// parameters and the buffers, all of them unsharded and under the module's names.
  std::vector<std::pair<std::string, at::Tensor>> fp32_state(bool exclude_frozen_parameters = false);

  /// These access the values of one trained parameter by its name in the module, at any ZeRO stage
  /// and on any tier. Full values are gathered, so every rank must make these calls, in the same
  /// order. Gradients are averaged over ranks and unscaled, not clipped, and exist between the last
  /// backward of a step and its step(). Errors: kNotFound for an unknown name (with the nearest
  /// one) or state, kOrder for a gradient that does not exist, kArgument for a wrong shape.
  ///   at::Tensor m = engine->full_optimizer_state("h.0.weight", "exp_avg");
  std::vector<std::string> parameter_names() const;
  std::vector<std::string> optimizer_states() const;  ///< the per-element states: "exp_avg", "exp_avg_sq"
  at::Tensor full_fp32_parameter(const std::string& name);
  at::Tensor full_gradient(const std::string& name);
  at::Tensor full_optimizer_state(const std::string& name, const std::string& state);
  /// Replaces a value on all ranks by rank 0's `value`. A gradient must be averaged and unscaled,
  /// as full_gradient returns it, and is set in the last micro-batch of a step, between backward()
  /// and step(). This allows custom clipping, noise or masks.
  void set_full_gradient(const std::string& name, const at::Tensor& value);
  /// Calls `body` with each trained parameter's name and full gradient, in the order of
  /// parameter_names(). Changes that `body` makes to the tensor on rank 0 replace the gradient on
  /// all ranks.
  ///   engine->for_each_gradient([](const std::string&, at::Tensor& gradient) { gradient.clamp_(-1, 1); });
  void for_each_gradient(const std::function<void(const std::string& name, at::Tensor& gradient)>& body);
  void set_full_fp32_parameter(const std::string& name, const at::Tensor& value);  ///< also sets the parameter in use
  void set_full_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& value);
  /// This rank's shard: elements [begin, begin + values.numel()) of the flattened parameter.
  /// `values` is undefined if this rank has none.
  struct Local {
    int64_t begin = 0;
    at::Tensor values;
  };
  Local local_fp32_parameter(const std::string& name) const;
  Local local_gradient(const std::string& name) const;
  Local local_optimizer_state(const std::string& name, const std::string& state) const;

  /// For ZeRO stage 3. Between forward and step, a thread that the program started must hold the
  /// result while it uses parameters. The thread that calls forward and autograd's own threads need
  /// no guard. Returns null if no parameters are gathered on demand.
  std::shared_ptr<void> guard();
  /// Copies the values that the program has written into the module's parameters (in place, by
  /// torch::load, set_data or to()) to the engine now, masters included. The next training forward,
  /// step or save does so by itself. Every rank writes the same values.
  void refresh_masters();

  /// Saves everything that a resume needs under `folder`/<tag>; every rank calls it, with the same
  /// arguments. With the config's "gannet": {"checkpoint": {"async": true}} this returns once a
  /// copy has been made; the next save, wait_for_checkpoint and the engine's destructor wait for
  /// the write. Throws Error(kIo) if writing fails, Error(kMismatch) if the ranks pass different
  /// tags; the training state and earlier checkpoints are unharmed.
  SaveReceipt save_checkpoint(const std::string& folder, const SaveOptions& options = {});
  /// Waits for a background write, and throws its error.
  void wait_for_checkpoint();
  /// Resumes from a checkpoint; the number of ranks may differ from that of the saved run. Every
  /// rank must call it. Throws Error(kNotFound) if there is none, Error(kCorrupt) if none is
  /// intact, Error(kMismatch) with the first differences if it belongs to another model. If the
  /// newest checkpoint is damaged, the one before it is loaded, which the receipt reports.
  LoadReceipt load_checkpoint(const std::string& folder, const LoadOptions& options = {});
  /// Adds the program's own state (a loader, a replay buffer's position) to checkpoints, for each
  /// rank: `save` returns the state, and `load` gets it back. If a run resumes with more ranks,
  /// those without a saved state get rank 0's.
  void add_state(const std::string& name, std::function<Value()> save, std::function<void(const Value&)> load);
  /// Makes checkpoints save the position in `loader`'s data under this name; initialize adds its
  /// own loader as "training_data". The engine does not keep the loader alive.
  void add_loader(const std::string& name, std::shared_ptr<ResumableLoader> loader);
  /// These save only the weights, which rank 0 writes as `folder`/`filename`: in the training
  /// dtype, or as fp32 masters. The extension selects the format: .safetensors, or .bin, .pt and
  /// .pth for torch.load; any other one is Error(kArgument). Every rank must call them.
  /// save_16bit_model returns whether it wrote the file: at ZeRO stage 3 it writes nothing unless
  /// the config's stage3_gather_16bit_weights_on_model_save is true, as with DeepSpeed, and then
  /// logs why.
  bool save_16bit_model(const std::string& folder, const std::string& filename = "model.safetensors",
                        bool exclude_frozen_parameters = false);
  void save_fp32_model(const std::string& folder, const std::string& filename = "model.safetensors",
                       bool exclude_frozen_parameters = false);

  /// Replaces the optimizer plugin of all parameter groups, between two steps; every rank calls it
  /// with the same arguments. `params` are as in the config, as a dictionary or JSON text. An
  /// override of a group applies if the new plugin has that parameter, unless `overrides` [groups]
  /// replaces the groups' overrides. States that both optimizers have with the same name, dtype and
  /// extent keep their values. If all states of a group are kept, its count of updates continues;
  /// otherwise the count, which Adam's bias correction uses, restarts from 1. A schedule continues
  /// at its position.
  ///   engine->swap_optimizer("SGD", R"({"lr": 0.01, "momentum": 0.9})");
  /// Errors are thrown on every rank and leave the former optimizer in use, unchanged: Error(kOrder) within a step,
  /// Error(kMismatch) if ranks ask for different optimizers, Error(kConfig) or Error(kArgument) for wrong arguments,
  /// Error(kUnsupported) for the program's own optimizer, or if the parameters would have to be partitioned again.
  SwapReceipt swap_optimizer(const std::string& type, const Value& params = Dict(), const std::vector<Dict>& overrides = {});

  /// Adds `number` to a count of this step, which the config's monitors write (docs/metrics.md,
  /// "counts"). Counts are summed over micro-batches and ranks, which need not use the same names.
  /// Counts after a boundary belong to the next step. Without a monitor it is a no-op.
  ///   engine->count("tokens", batch.data.numel());
  void count(std::string_view name, int64_t number);
  /// Records a value of the program's own that the monitors write with this step ("values"; in
  /// TensorBoard and CSV as Train/Samples/<name>, or under the name itself if it has a '/'). Rank
  /// 0's value is written; if there are several in a step, the last one.
  ///   engine->record("accuracy", engine->mean(correct / total));
  void record(std::string_view name, double value);

  /// One line per plugin in use: kind, name, version, file.
  std::string plugin_table() const;
  /// Each effective config value with its origin, as `gannet config resolve` prints it.
  std::string config_table() const;
  Value config_value(const std::string& path) const;  ///< the effective value of a key ("gannet.checkpoint.keep"); null: none

  std::shared_ptr<OptimizerHandle> optimizer_handle();
  std::shared_ptr<SchedulerHandle> scheduler_handle();
  /// Sampling options and device for a loader of this engine.
  LoaderOptions loader_options() const;
  void announce_leftovers(int64_t micro_batches, int64_t leftover) const;
  /// Makes steps end with epochs from now on. `micro_batches_left` returns the number of
  /// micro-batches left in the epoch, including the current one; it must return the same number on
  /// every rank. A shorter last step divides its loss by its number of micro-batches.
  void end_steps_with_epochs(std::function<int64_t()> micro_batches_left);
  /// Does the same for the epochs of a loader. Throws Error(kUnsupported) for a stream, because the
  /// end of a stream is unknown in advance.
  void end_steps_with_epochs_of(std::shared_ptr<ResumableLoader> loader);
  std::string leftover_micro_batches() const;  ///< the config's gannet.leftover_micro_batches

  struct Impl;
  Impl& impl() { return *impl_; }

 protected:
  void begin_forward();
  void finish_forward();  // the model's forward has returned; checks that all ranks arrived
  void end_forward();     // after finish_forward(), or after an exception
  static at::Tensor forward_layers(const std::shared_ptr<torch::nn::SequentialImpl>& model,
                                   const std::vector<at::Tensor>& inputs);
  [[noreturn]] void rethrow_from_forward();  // call it in a catch block: converts LibTorch's memory, device and dtype errors
  std::unique_ptr<Impl> impl_;
};

template <class Model>
class Engine : public EngineBase {
 public:
  Engine(std::shared_ptr<Model> model, const EngineOptions& options) : EngineBase(model, options), model_(std::move(model)) {}

  /// Calls the model's own forward, which may have any signature. Running out of memory and device
  /// errors are Error(kOutOfMemory) and Error(kDevice), here and in every other call. If the config
  /// has 16-bit parameters, an operator that rejects mixed dtypes is Error(kMismatch). All other
  /// exceptions of the model pass through unchanged.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) -> decltype(std::declval<Model&>().forward(std::forward<Arguments>(arguments)...)) {
    return call([&](Model& model) -> decltype(model.forward(std::forward<Arguments>(arguments)...)) {
      // A Sequential is itself a list of layers, which the config's checkpointing settings group
      // into regions.
      if constexpr (std::is_same_v<Model, torch::nn::SequentialImpl> &&
                    (std::is_same_v<std::decay_t<Arguments>, at::Tensor> && ...))
        if (is_gradient_checkpointing()) return forward_layers(model_, {arguments...});
      return model.forward(std::forward<Arguments>(arguments)...);
    });
  }
  /// Runs `function(model)` as a forward, for members of the model other than forward. At ZeRO
  /// stage 3 its operators find their parameters, as in forward. Its result may be passed to
  /// backward().
  ///   at::Tensor embedded = engine->call([&](Net& net) { return net.embed(batch.data); });
  template <class Function>
  auto call(Function&& function) -> decltype(function(std::declval<Model&>())) {
    struct Scope {
      explicit Scope(Engine& engine) : engine(engine) { engine.begin_forward(); }
      ~Scope() { engine.end_forward(); }
      Engine& engine;
    };
    using Result = decltype(function(std::declval<Model&>()));
    try {
      Scope scope(*this);
      if constexpr (std::is_void_v<Result>) {
        function(*model_);
        finish_forward();
      } else {
        Result result = function(*model_);
        finish_forward();
        return std::forward<Result>(result);
      }
    } catch (...) {
      rethrow_from_forward();
    }
  }
  template <class... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  const std::shared_ptr<Model>& module() const { return model_; }

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace gannet
