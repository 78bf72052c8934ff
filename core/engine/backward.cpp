// Backward: from outputs and their gradients to gradients in the engine's buffers, reduced over the
// ranks.
//
//   backward(loss)       one output; its gradient is the loss scale / accumulation steps
//   scale(loss)          the same for a backward that the program calls itself (scale.cpp)
//   run_backward(...)    shared by both and by pipeline stages: any number of outputs, with their gradients
#include "engine/backward.h"

#include <ATen/ops/full.h>
#include <gannet/engine.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <cmath>

#include "base/check.h"
#include "base/format.h"
#include "control/world.h"
#include "engine/checkpoint/not_finite.h"
#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/operator_errors.h"
#include "engine/optimizer_reduction.h"
#include "tensor/torch_errors.h"

namespace gannet {

void check_loss(const EngineBase::Impl& impl, const at::Tensor& loss, const char* call) {
  const std::string name = formatted("{}()", call);
  const auto require_graph = [&] {
    if (!loss.requires_grad())
      throw Error(ErrorCode::kArgument,
                  formatted("the loss given to {} does not depend on any parameter that requires a gradient", name),
                  "compute it from engine->forward(...), outside NoGradGuard and InferenceMode, and do not detach it");
  };
  // Checked first: a forward without a graph is not a micro-batch, so the error would otherwise be
  // "called before forward()".
  if (impl.passes.training && loss.defined() && loss.numel() == 1) require_graph();
  impl.progress.check_backward(name, impl.passes.training);
  if (!loss.defined() || loss.numel() != 1)
    throw Error(ErrorCode::kArgument,
                formatted("{} takes a loss of one element, found {}", name,
                          loss.defined() ? formatted("{} elements", loss.numel()) : std::string("an undefined tensor")),
                "reduce it first, for example with .mean()");
  require_graph();
}

double seed(const EngineBase::Impl& impl, const BackwardOptions& options) {
  return impl.scaler.scale() / (options.scale_wrt_gas ? static_cast<double>(impl.micro_batches_of_step()) : 1.0);
}

// Names the optimizer plugin that updates the parameters, for an error.
std::string written_by(const EngineBase::Impl& impl) {
  if (impl.progress.applied_steps == 0) return "; no update was applied yet";
  const Optimizer* optimizer = impl.groups.empty() ? nullptr : impl.groups[0].optimizer.get();
  return optimizer ? formatted("; {} updates them ({} updates applied)",
                               formatted("optimizer plugin {} {} ({})", optimizer->plugin().name(), optimizer->plugin().version(),
                                         optimizer->plugin().file),
                               impl.progress.applied_steps)
                   : "";
}

bool note_loss(EngineBase::Impl& impl, const at::Tensor& loss, const BackwardOptions& options) {
  // Where the host cannot read device memory directly, reading the loss would wait for the device.
  const bool is_finite = !impl.host_reads_device() || std::isfinite(loss.item<double>());
  impl.passes.loss_was_finite &= is_finite;
  if (impl.reporter && !impl.passes.has_loss())
    impl.reporter->add_loss(loss, options.scale_wrt_gas ? 1.0 : static_cast<double>(impl.micro_batches_of_step()));
  return is_finite;
}

void take_loss(EngineBase::Impl& impl, const at::Tensor& loss, const BackwardOptions& options) {
  if (note_loss(impl, loss, options) || impl.skip_policy.skips) return;
  const std::string what = formatted("the loss of step {} is {}", impl.progress.global_steps + 1, loss.item<double>());
  if (impl.reporter) impl.reporter->error(impl.progress.global_steps + 1, what);
  // Non-finite parameters come from an earlier update, the program or a file, not from the current
  // learning rate.
  if (const std::string wrong = not_finite_text(impl.store); !wrong.empty())
    throw Error(ErrorCode::kNonFinite, formatted("{}; before this forward {}{}", what, wrong, written_by(impl)),
                "load a checkpoint from before (the log names one whose parameters are not finite), and look at what wrote "
                "them: the last update, the program, or the file that they were loaded from");
  throw Error(ErrorCode::kNonFinite,
              formatted("{}; no parameter was changed, and the next micro-batch is the first of its step", what),
              "look for a too large learning rate, a division by zero in the loss, or a bad sample");
}

// Returns whether this backward averages gradients over the ranks: at a boundary, unless no_sync()
// or `options` turn it off. Sharded ones are always averaged; `options` against it: kUnsupported.
bool reduces(const EngineBase::Impl& impl, const BackwardOptions& options) {
  if (impl.store.shards_gradients() && !options.allreduce_gradients)
    throw Error(ErrorCode::kUnsupported,
                formatted("backward() with allreduce_gradients = false at ZeRO stage {}: a rank keeps no gradients that are not "
                          "its own, so they are averaged at once",
                          impl.settings().zero.stage),
                "use stage 1 or 0");
  return (impl.is_boundary() || impl.store.shards_gradients()) && options.allreduce_gradients && !impl.passes.no_sync;
}

// From here to end_backward the calling thread is in a backward of this engine. `is_marked`: the
// backward already carries the reducer's mark (scale.cpp).
void begin_backward(EngineBase::Impl& impl, const BackwardPass& pass, bool is_marked) {
  impl.take_cleared_gradients();
  impl.newcomers.begin_backward(impl.module_audit->unknown());
  if (impl.passes.keeps_user_grads) impl.reducer->drop_kept();
  impl.passes.keeps_user_grads = pass.create_graph;
  const bool reduce = pass.reduce && impl.comm->size() > 1;
  if (reduce && !impl.reducer->is_reduced()) plan_reduction(impl);
  // If recomputation was toggled on one rank only, that rank would gather parameters that the
  // others do not, so the ranks meet first.
  const auto begin = impl.activations.layers->take_turned() ? control::Watch::Call::kTogether : control::Watch::Call::kAtOnce;
  if (reduce || impl.store.gathers())
    impl.passes.running->call.emplace(impl.process_group->world()->watch(), impl.watched_group(), "backward",
                                      impl.progress.global_steps + 1, "", begin, &impl.agreed(impl.is_boundary()));
  else if (control::Watch* const watch = impl.process_group->world()->watch())
    watch->check();  // a verdict also ends a micro-batch in which ranks do not meet
  impl.passes.running->armed = impl.store.arm();
  if (impl.passes.running->call) impl.passes.running->call->carry(*impl.reducer->mark());
  impl.reducer->begin_backward(
      {.reduce = reduce, .keep_grads = pass.create_graph, .is_marked = is_marked, .inputs_alone = pass.inputs_alone});
  impl.store.begin_backward();
  impl.progress.begin_backward();
}

void end_backward(EngineBase::Impl& impl) {
  impl.store.end_backward();
  impl.reducer->end_backward();
  impl.newcomers.end_backward(impl.passes.keeps_user_grads);
  impl.passes.running.reset();
  impl.progress.end_backward();
}

// Abandons a backward that an exception ended, and a scaled loss that had no backward.
void give_up_backward(EngineBase::Impl& impl) {
  if (impl.progress.is_in_backward()) impl.restart_step();
  impl.passes.running.reset();
  impl.passes.scale_scope.reset();
}

// Drops all gradients. The next micro-batch is the first of its step.
void EngineBase::Impl::restart_step() noexcept {
  if (passes.running && passes.running->call) passes.running->call->fail();
  newcomers.forget();
  if (reducer) reducer->abandon();
  passes.running.reset();
  passes.scale_scope.reset();
  updater.abandon();
  store.abandon();
  progress.restart_step();
  if (reporter) reporter->forget_step();
  start_next_step();
}

// As in plain LibTorch, clearing `.grad` drops what was accumulated so far. The micro-batch count
// does not change.
void EngineBase::Impl::take_cleared_gradients() {
  const std::vector<std::string> cleared = reducer->take_cleared();
  if (cleared.empty()) return;
  module_audit->say_once(formatted(
      "the program cleared `.grad` within step {} (zero_grad() of the module or of an optimizer): what "
      "was gathered so far of '{}'{} is dropped, as without an engine",
      progress.global_steps + 1, cleared[0], cleared.size() > 1 ? formatted(" and {} others", cleared.size() - 1) : ""));
}

void drop_user_gradients(EngineBase::Impl& impl) {
  for (auto& range : impl.store.ranges())
    for (auto& parameter : range.parameters) parameter.tensor.mutable_grad().reset();
  impl.passes.keeps_user_grads = false;
}

void forget_gradients(EngineBase::Impl& impl) {
  Timers::Scope timed(impl.timers, TimedPhase::kForget);
  impl.newcomers.forget();
  impl.reducer->forget();
  if (impl.passes.keeps_user_grads) drop_user_gradients(impl);
}

// `execute` runs autograd's backward.
template <class Execute>
void run_pass(EngineBase::Impl& impl, const BackwardPass& pass, const Execute& execute) {
  if (!impl.passes.running) impl.passes.running = std::make_unique<Passes::RunningBackward>();
  begin_backward(impl, pass, /*is_marked=*/false);
  if (impl.profiling) impl.profiling->begin_backward();
  execute();
  if (impl.profiling) impl.profiling->end_backward();
  end_backward(impl);
}

void run_backward(EngineBase::Impl& impl, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                  const BackwardPass& pass) {
  GANNET_CHECK(outputs.size() == gradients.size(), "a gradient for each output");
  run_pass(impl, pass,
           [&] { torch::autograd::backward(outputs, gradients, pass.retain_graph || pass.create_graph, pass.create_graph); });
}

void run_backward(EngineBase::Impl& impl, const torch::autograd::edge_list& roots, torch::autograd::variable_list gradients,
                  const BackwardPass& pass) {
  GANNET_CHECK(roots.size() == gradients.size(), "a gradient for each root");
  run_pass(impl, pass, [&] {
    if (!roots.empty())
      torch::autograd::Engine::get_default_engine().execute(roots, gradients, pass.retain_graph || pass.create_graph,
                                                            pass.create_graph, /*accumulate_grad=*/true);
  });
}

namespace {

// Regions that are recomputed in the first pass keep what the second one needs (activation/region.h),
// unless memory matters more than time.
class SplitScope {
 public:
  SplitScope(EngineBase::Impl& impl, int64_t number, bool is_input_pass) : info_(*impl.reducer->mark()) {
    if (impl.settings().pipe_recompute_twice) return;  // two backwards
    info_.is_input_pass = is_input_pass;
    info_.split = number;
  }
  ~SplitScope() { info_.split = 0; }
  SplitScope(const SplitScope&) = delete;

 private:
  BackwardInfo& info_;
};

}  // namespace

torch::autograd::variable_list run_input_pass(EngineBase::Impl& impl, const torch::autograd::edge_list& roots,
                                              const torch::autograd::variable_list& gradients,
                                              const torch::autograd::edge_list& inputs, SplitBackward& split) {
  torch::autograd::variable_list of_inputs;
  run_pass(impl, {.inputs_alone = true}, [&] {
    const SplitScope scope(impl, split.number(), /*is_input_pass=*/true);
    of_inputs = split.input_pass(roots, gradients, inputs);
  });
  return of_inputs;
}

void run_weight_pass(EngineBase::Impl& impl, SplitBackward split, const BackwardPass& pass) {
  run_pass(impl, pass, [&] {
    const SplitScope scope(impl, split.number(), /*is_input_pass=*/false);
    split.weight_pass();
  });
}

void EngineBase::backward(const at::Tensor& loss, const BackwardOptions& options) {
  Impl& impl = *impl_;
  const Calls::Entered entered(impl.calls, name_of(Call::kBackward));
  if (impl.profiling) impl.profiling->pause();
  gate::require(impl, Call::kBackward);
  check_loss(impl, loss, "backward");
  give_up_backward(impl);
  try {
    Timers::Scope timed(impl.timers, TimedPhase::kBackward);
    take_loss(impl, loss, options);
    // The scale and the division by the accumulation steps are part of backward's seed, so they
    // need no pass over the loss or the gradients.
    const at::Tensor seeds = at::full(loss.sizes(), seed(impl, options), loss.options().requires_grad(false));
    run_backward(impl, {loss}, {seeds}, {reduces(impl, options), options.retain_graph, options.create_graph});
  } catch (...) {
    impl.restart_step();
    rethrow_of_operators(impl, *impl.module, "backward");
  }
}

void EngineBase::allreduce_gradients() try {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kAllreduceGradients);
  if (!impl.reducer || impl.comm->size() == 1 || impl.reducer->is_reduced()) return;
  auto call = impl.process_group->world()->enter(*impl.world_group, "allreduce_gradients", impl.progress.global_steps + 1,
                                                 impl.agreed(impl.is_boundary()));
  Timers::Scope timed(impl.timers, TimedPhase::kReduce);
  plan_reduction(impl);
  impl.take_cleared_gradients();
  impl.reducer->begin_backward({.reduce = true, .brings = false});
  impl.reducer->end_backward();
} catch (...) {
  rethrow_as_ours("allreduce_gradients");
}

}  // namespace gannet
