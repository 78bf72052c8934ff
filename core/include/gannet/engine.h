/// The engine: one model, its optimizer, and the steps that train it.
///
///   auto loss = engine->forward(batch.data, batch.target);   // the model's own forward
///   engine->backward(loss);
///   if (auto done = engine->step(); done.boundary && !done.applied) std::cerr << done.reason << '\n';
///
/// forward, backward and step are called once per micro-batch; every gradient_accumulation_steps-th step() is a boundary and
/// updates the parameters. An engine is used by one thread at a time: a call while another thread is in one is Error(kOrder),
/// which names both. Engine<Model> is a typed face over EngineBase, which is compiled in the core.
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

/// What initialize hands to the engine, whatever the batch's type.
struct EngineOptions;

class EngineBase {
 public:
  EngineBase(std::shared_ptr<torch::nn::Module> module, const EngineOptions& options);
  virtual ~EngineBase();
  EngineBase(const EngineBase&) = delete;
  EngineBase& operator=(const EngineBase&) = delete;

  /// Gradients of `loss` (one element, with a graph) into the engine's buffers, scaled by the loss scale and divided by
  /// gradient_accumulation_steps; at a boundary they are averaged over ranks while backward still runs. May be called several
  /// times before step(). Throws Error(kOrder) without a forward before, Error(kNonFinite) on a NaN loss where no loss scale
  /// could mend it.
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});
  /// `loss` times the loss scale, divided by gradient_accumulation_steps: for a program that calls LibTorch's backward itself, as
  /// it must with several roots. The backward through what is returned is this engine's, as backward(loss) is; it is called on
  /// the thread that called scale(). Errors as backward().
  ///   torch::autograd::backward({engine->scale(loss), engine->scale(penalty)}, {});
  ///   engine->step();
  ///
  /// Where gradients are. This engine's backward moves each gradient into the engine's buffers: afterwards `.grad` is undefined.
  /// full_gradient, for_each_gradient and set_full_gradient reach them. Any other backward (a loss.backward(), another engine's)
  /// leaves its gradients in `.grad`, where PyTorch puts them; a step() that finds some there throws Error(kOrder) and names the
  /// parameter, since plain LibTorch would have added them up.
  at::Tensor scale(const at::Tensor& loss, const BackwardOptions& options = {});
  /// Averages the gradients over ranks now; backward does so itself unless told not to.
  void allreduce_gradients();
  /// Ends the micro-batch; at a boundary checks, clips and updates.
  StepResult step();

  /// Steps of two passes. Some optimizers take the gradient of a step at other parameters than those that it updates (SAM), or a
  /// second gradient, of another loss (Sophia). The step's micro-batches run once more then, and an earlier pass ends with
  /// perturb() or keep_second_gradient() in the place of step():
  ///   engine->backward(loss(engine->forward(batch.data)));
  ///   engine->perturb();                                     // the model is at w + e(w)
  ///   engine->backward(loss(engine->forward(batch.data)));
  ///   engine->step();                                        // at w again, updated with the gradient at w + e(w)
  ///
  /// perturb() checks the gradient and moves the parameters as the optimizer says, on all ranks, in every copy; gradients begin
  /// again. step() puts the parameters back, bit for bit, before it updates. Between the two save_checkpoint, load_checkpoint,
  /// eval(), swap_optimizer, and whatever else writes or exports parameters, are Error(kOrder). `applied` of the result: they
  /// were moved. A gradient that is not finite, where such a step is skipped, moves nothing, and the step() that follows is
  /// skipped; the program need not ask. Without perturb() the step is an ordinary one. Every rank calls it. Error(kUnsupported)
  /// where the optimizer has no perturbation. It takes the memory of the masters once more.
  StepResult perturb();
  /// Whether the step in hand takes a second gradient. The same on every rank.
  bool wants_second_gradient() const;
  /// Keeps the averaged, unscaled gradient of this pass for the update of this step:
  ///   if (engine->wants_second_gradient()) {
  ///     engine->backward(sampled_loss(engine->forward(batch.data)));
  ///     engine->keep_second_gradient();
  ///   }
  ///   engine->backward(loss(engine->forward(batch.data)));
  ///   engine->step();
  /// What is not finite is treated as by perturb(). step() without it, where one is wanted, and keep_second_gradient() where none
  /// is, are Error(kOrder). Every rank calls it. It takes the memory of the masters once more, until step().
  StepResult keep_second_gradient();
  /// Begins the step in hand again: puts back what perturb() moved, and drops its gradients. For a program that does not end a
  /// step of two passes. (After an exception in a later pass that pass begins again.) Every rank calls it.
  void abandon_step();

  bool is_gradient_accumulation_boundary() const;
  /// Forces the answer of is_gradient_accumulation_boundary until it is called with nullopt.
  void set_gradient_accumulation_boundary(std::optional<bool> is_boundary);
  /// Forgets the gradients gathered so far, and `.grad` of the trained parameters: the next micro-batch is the first of its step.
  void zero_grad();
  /// The module's training mode. Where the engine evaluates with other weights than it trains (Schedule-Free; the moving average
  /// of gannet.ema; local steps, see parameters_differ), eval() puts those into the model, for forward, fp32_parameters,
  /// save_16bit_model and whatever else reads it, and train() puts the trained ones back, bit for bit. Every rank calls them
  /// then, between two steps; backward, step, save_checkpoint and load_checkpoint before train() are Error(kOrder). It takes the
  /// memory of the fp32 masters once more.
  ///   engine->eval();
  ///   { torch::NoGradGuard no_grad; report(engine->forward(batch.data, batch.target)); }
  ///   engine->train();
  void train(bool on = true);
  void eval() { train(false); }
  /// Whether the ranks have different parameters now: after a local step of an optimizer that averages them from time to time
  /// (ZeroOneAdam). What is the same on all ranks then, the weights to use, is given by fp32_parameters, full_fp32_parameter,
  /// save_16bit_model, save_fp32_model and eval(); checkpoints have both. Parameters that the program writes now, and
  /// swap_optimizer, are Error(kOrder). The same on every rank.
  bool parameters_differ() const;

  /// The one switch of activation checkpointing for a model that runs its layers by run_layers (gannet/layers.h): the config's
  /// number_checkpoints, interval or memory_limit, where it has none each layer, from the next forward on. On from the start
  /// where the config has one of them. Losses and parameters have the same bits. Every rank calls it. Regions that the program
  /// makes itself by checkpointing::checkpoint stay what they are.
  void gradient_checkpointing_enable();
  void gradient_checkpointing_disable();
  bool is_gradient_checkpointing() const;

  std::vector<double> get_lr() const;  ///< of each group: what the next update uses
  void set_lr(double lr);              ///< of all groups; a schedule replaces it after the next update
  /// 2-norm of the last boundary's whole gradient, averaged and unscaled, before clipping; nullopt before the first one, and
  /// after one that was skipped.
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
  /// Changes gradient_accumulation_steps; Error(kArgument) unless divisible by micro-batch times ranks. Between two micro-batches
  /// of one step it takes effect with the next step.
  void set_train_batch_size(int64_t samples);
  void set_train_micro_batch_size(int64_t samples);

  /// While it lives, backward does not average over ranks. step() inside is an error.
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
  uint32_t rank() const;        ///< along the data axis: which share of each batch is this rank's
  uint32_t world_size() const;  ///< ranks with data of their own
  const std::shared_ptr<ProcessGroup>& process_group() const;
  double mean(double value);                             ///< over ranks; every rank calls it
  std::vector<double> mean(std::vector<double> values);  ///< of each number, in one collective; as many on every rank
  /// Every rank's bytes, by rank, whatever their sizes. Every rank calls it. For what the program measures, not for training.
  std::vector<std::string> gather(const std::string& bytes);

  /// Names and fp32 values of the trained parameters: the masters of 16-bit training, else the parameters themselves. Every rank
  /// calls it: with sharded masters they are gathered, which takes the memory of all of them while the answer lives.
  std::vector<std::pair<std::string, at::Tensor>> fp32_parameters();
  /// What a checkpoint of weights holds: fp32_parameters, frozen parameters and buffers, whole, under the module's names.
  std::vector<std::pair<std::string, at::Tensor>> fp32_state(bool exclude_frozen_parameters = false);

  /// Values of one trained parameter by its name in the module, whatever the stage and the tier. Whole ones are gathered: every
  /// rank calls them, in the same order. Gradients are averaged over ranks and unscaled, not clipped, and there are any between
  /// the last backward of a step and its step(). Errors: kNotFound for a name (with the nearest one) or state, kOrder for a
  /// gradient that is not there, kArgument for a wrong shape.
  ///   at::Tensor m = engine->full_optimizer_state("h.0.weight", "exp_avg");
  std::vector<std::string> parameter_names() const;
  std::vector<std::string> optimizer_states() const;  ///< those of each element: "exp_avg", "exp_avg_sq"
  at::Tensor full_fp32_parameter(const std::string& name);
  at::Tensor full_gradient(const std::string& name);
  at::Tensor full_optimizer_state(const std::string& name, const std::string& state);
  /// Replace a value on all ranks by rank 0's `value`. A gradient is given averaged and unscaled, as full_gradient returns it, in
  /// the last micro-batch of a step, between backward() and step(): for clipping by hand, noise, masks.
  void set_full_gradient(const std::string& name, const at::Tensor& value);
  /// Calls `body` with each trained parameter's name and whole gradient, in the order of parameter_names(). What `body` writes
  /// into the tensor on rank 0 replaces the gradient on all ranks.
  ///   engine->for_each_gradient([](const std::string&, at::Tensor& gradient) { gradient.clamp_(-1, 1); });
  void for_each_gradient(const std::function<void(const std::string& name, at::Tensor& gradient)>& body);
  void set_full_fp32_parameter(const std::string& name, const at::Tensor& value);  ///< the parameter in use too
  void set_full_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& value);
  /// This rank's part: elements [begin, begin + values.numel()) of the flattened parameter. Undefined values: it has none.
  struct Local {
    int64_t begin = 0;
    at::Tensor values;
  };
  Local local_fp32_parameter(const std::string& name) const;
  Local local_gradient(const std::string& name) const;
  Local local_optimizer_state(const std::string& name, const std::string& state) const;

  /// At ZeRO stage 3, between forward and step: what a thread of the program's own needs to use parameters while the answer
  /// lives. The thread that calls forward and autograd's own threads need none. Null where parameters are whole anyway.
  std::shared_ptr<void> guard();
  /// Takes in now what the program has written into the module's parameters, masters included: in place, by torch::load, set_data
  /// or to(). The next training forward, step or save does so by itself. Every rank writes the same values.
  void refresh_masters();

  /// Saves everything that a resume needs under `folder`/<tag>; every rank calls it, with the same arguments. With the config's
  /// "gannet": {"checkpoint": {"async": true}} it returns when a copy was made; the next save, wait_for_checkpoint and the
  /// engine's end wait for the write. Throws Error(kIo) where writing fails, Error(kMismatch) on different tags; training state
  /// and former checkpoints are unharmed.
  SaveReceipt save_checkpoint(const std::string& folder, const SaveOptions& options = {});
  /// Waits for a write in the background, and throws its error.
  void wait_for_checkpoint();
  /// Resumes from a checkpoint; the number of ranks may differ. Every rank calls it. Throws Error(kNotFound)
  /// where there is none, Error(kCorrupt) where none is whole, Error(kMismatch) with the first differences where it is of
  /// another model. A broken newest checkpoint is passed over for the one before it, which the receipt tells.
  LoadReceipt load_checkpoint(const std::string& folder, const LoadOptions& options = {});
  /// A state of the program's own (a loader, a replay buffer's position) that checkpoints keep for each rank: `save` returns
  /// it, `load` gets it back. At another number of ranks, ranks that had none get rank 0's.
  void add_state(const std::string& name, std::function<Value()> save, std::function<void(const Value&)> load);
  /// The place in `loader`'s data is kept by checkpoints under this name; initialize adds its own as "training_data". Not kept
  /// alive.
  void add_loader(const std::string& name, std::shared_ptr<ResumableLoader> loader);
  /// The weights alone, by rank 0, as `folder`/`filename`: in the training dtype, or as fp32 masters. The name says the format:
  /// .safetensors, or .bin, .pt and .pth for torch.load; another is Error(kArgument). Every rank calls it. Whether it wrote:
  /// save_16bit_model writes nothing at ZeRO stage 3 unless the config's stage3_gather_16bit_weights_on_model_save is true, as
  /// DeepSpeed's, and then logs why.
  bool save_16bit_model(const std::string& folder, const std::string& filename = "model.safetensors",
                        bool exclude_frozen_parameters = false);
  void save_fp32_model(const std::string& folder, const std::string& filename = "model.safetensors",
                       bool exclude_frozen_parameters = false);

  /// Replaces the optimizer plugin of all parameter groups, between two steps; every rank calls it with the same arguments.
  /// `params` as in the config, a dictionary or JSON text; the groups' overrides apply where the plugin has such a parameter,
  /// unless `overrides` [groups] gives others. States that both have (name, dtype, extent) keep their values. Where all states of
  /// a group are kept its updates count on, else they count from 1 (Adam's bias correction). A schedule continues at its place.
  ///   engine->swap_optimizer("SGD", R"({"lr": 0.01, "momentum": 0.9})");
  /// Throws on every rank, with the former optimizer in use as it was: Error(kOrder) within a step, Error(kMismatch) where ranks
  /// ask for different ones, Error(kConfig) of the params, Error(kUnsupported) where the partition would have to be cut again.
  SwapReceipt swap_optimizer(const std::string& type, const Value& params = Dict(), const std::vector<Dict>& overrides = {});

  /// Adds to a number of this step that the config's monitors write (docs/metrics.md, "counts"): summed over micro-batches and
  /// ranks, which need not count the same names. What is counted after a boundary belongs to the next step. Without a monitor it
  /// does nothing.
  ///   engine->count("tokens", batch.data.numel());
  void count(std::string_view name, int64_t number);
  /// A number of the program's own that the monitors write with this step ("values"; in TensorBoard and CSV as
  /// Train/Samples/<name>, or as it is where it has a '/'): rank 0's, the last one where there are several.
  ///   engine->record("accuracy", engine->mean(correct / total));
  void record(std::string_view name, double value);

  /// One line per plugin in use: kind, name, version, file.
  std::string plugin_table() const;
  /// Each effective config value with its origin, as `gannet config resolve` prints it.
  std::string config_table() const;
  Value config_value(const std::string& path) const;  ///< an effective value, "gannet.checkpoint.keep"; null: there is none

  std::shared_ptr<OptimizerHandle> optimizer_handle();
  std::shared_ptr<SchedulerHandle> scheduler_handle();
  /// Sampling and device for a loader of this engine.
  LoaderOptions loader_options() const;
  void announce_leftovers(int64_t micro_batches, int64_t leftover) const;
  /// Steps end with epochs from now on: `micro_batches_left` says how many are left of the epoch, the one in hand included, the
  /// same on every rank. A last step of fewer micro-batches divides its loss by their number.
  void end_steps_with_epochs(std::function<int64_t()> micro_batches_left);
  /// The same with the epochs of a loader. Error(kUnsupported) for a stream, whose end is not known before it is met.
  void end_steps_with_epochs_of(std::shared_ptr<ResumableLoader> loader);
  std::string leftover_micro_batches() const;  ///< the config's gannet.leftover_micro_batches

  struct Impl;
  Impl& impl() { return *impl_; }

 protected:
  void begin_forward();
  void finish_forward();  // the model's returned: are all ranks here?
  void end_forward();     // after it, or after an exception
  static at::Tensor forward_layers(const std::shared_ptr<torch::nn::SequentialImpl>& model,
                                   const std::vector<at::Tensor>& inputs);
  [[noreturn]] void rethrow_from_forward();  // within a handler: LibTorch's errors of memory, device and dtypes as ours
  std::unique_ptr<Impl> impl_;
};

template <class Model>
class Engine : public EngineBase {
 public:
  Engine(std::shared_ptr<Model> model, const EngineOptions& options) : EngineBase(model, options), model_(std::move(model)) {}

  /// The model's own forward, any signature. Memory that ran out and an error of the device are Error(kOutOfMemory) and
  /// Error(kDevice) here and in every other call. An operator that refuses a mixture of dtypes, where the config has the
  /// parameters in 16 bits, is Error(kMismatch). What else the model throws leaves forward as it is.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) -> decltype(std::declval<Model&>().forward(std::forward<Arguments>(arguments)...)) {
    return call([&](Model& model) -> decltype(model.forward(std::forward<Arguments>(arguments)...)) {
      // A Sequential is a list of layers as it is: the config cuts it.
      if constexpr (std::is_same_v<Model, torch::nn::SequentialImpl> &&
                    (std::is_same_v<std::decay_t<Arguments>, at::Tensor> && ...))
        if (is_gradient_checkpointing()) return forward_layers(model_, {arguments...});
      return model.forward(std::forward<Arguments>(arguments)...);
    });
  }
  /// `function(model)` as a forward: for another member of the model than forward. At ZeRO stage 3 its operators find their
  /// parameters, as in forward; what it returns may go into backward().
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
