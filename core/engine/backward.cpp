// Backward: from outputs and their gradients to gradients in the engine's buffers, reduced over the ranks where a step ends.
//
//   backward(loss)       one output, whose gradient is the loss scale over the accumulation steps
//   scale(loss)          the same for a backward that the program calls itself (scale.cpp)
//   run_backward(...)    what is under both, and under a stage of a pipeline: any number of outputs, with their gradients
#include <ATen/ops/full.h>
#include <gannet/engine.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "base/check.h"
#include "base/format.h"
#include "control/world.h"
#include "engine/impl.h"
#include "tensor/torch_errors.h"

namespace gannet {

void EngineBase::Impl::check_loss(const at::Tensor& loss, const char* call) const {
  const std::string name = formatted("{}()", call);
  require_usable(call);
  if (!reducer)
    throw Error(ErrorCode::kOrder, formatted("{} was called, but there is no optimizer", name),
                "add an \"optimizer\" block to the config, or pass one to initialize");
  progress.check_backward(name, training);
  if (!loss.defined() || loss.numel() != 1)
    throw Error(ErrorCode::kArgument,
                formatted("{} takes a loss of one element, found {}", name,
                          loss.defined() ? formatted("{} elements", loss.numel()) : std::string("an undefined tensor")),
                "reduce it first, for example with .mean()");
  if (!loss.requires_grad())
    throw Error(ErrorCode::kArgument,
                formatted("the loss given to {} does not depend on any parameter that requires a gradient", name),
                "compute it from engine->forward(...), outside NoGradGuard, and do not detach it");
}

double EngineBase::Impl::seed(const BackwardOptions& options) const {
  return scaler.scale() / (options.scale_wrt_gas ? static_cast<double>(settings().accumulation_steps) : 1.0);
}

// What a loss says beside its gradients: whether it is finite, and its value for the monitors.
void EngineBase::Impl::take_loss(const at::Tensor& loss, const BackwardOptions& options) {
  if (device.is_cpu()) {  // elsewhere, reading the loss would make the program wait for the device
    loss_was_finite = std::isfinite(loss.item<double>());
    if (!loss_was_finite && !skip_policy.skips) {
      const std::string what = formatted("the loss of step {} is {}", progress.global_steps + 1, loss.item<double>());
      if (reporter) reporter->error(progress.global_steps + 1, what);
      throw Error(ErrorCode::kNonFinite,
                  formatted("{}; no parameter was changed, and the next micro-batch is the first of its step", what),
                  "look for a too large learning rate, a division by zero in the loss, or a bad sample");
    }
  }
  if (reporter) reporter->add_loss(loss, options.scale_wrt_gas ? 1.0 : static_cast<double>(settings().accumulation_steps));
}

// Whether this backward averages over the ranks: at a boundary or, where a rank keeps its own gradients alone, always.
bool EngineBase::Impl::reduces(const BackwardOptions& options) const {
  if (shards_gradients() && !options.allreduce_gradients)
    throw Error(ErrorCode::kUnsupported,
                formatted("backward() with allreduce_gradients = false at ZeRO stage {}: a rank keeps no gradients that are not "
                          "its own, so they are averaged at once",
                          settings().zero.stage),
                "use stage 1 or 0");
  return (is_boundary() || shards_gradients()) && options.allreduce_gradients && !no_sync;
}

// The calling thread is in a backward of this engine's from here to end_backward. `is_marked`: it carries the reducer's mark
// already (scale.cpp).
void EngineBase::Impl::begin_backward(const BackwardPass& pass, bool is_marked) {
  if (keeps_user_grads) drop_user_gradients();
  keeps_user_grads = pass.create_graph;
  const bool reduce = pass.reduce && comm->size() > 1;
  if (reduce || residency)
    running->call.emplace(process_group->world()->watch(), watched_group(), "backward", progress.global_steps + 1, "",
                          control::Watch::Call::kAtOnce, &agreed(is_boundary()));
  if (residency && (!interception || !interception->is_of_this_thread())) running->armed = std::make_unique<zero::Interception>();
  reducer->begin_backward({reduce, pass.create_graph, is_marked});
  if (residency) residency->begin(zero::Residency::Pass::kBackward);
  progress.begin_backward();
}

void EngineBase::Impl::end_backward() {
  if (residency) {
    residency->end();
    gatherer->meet("the end of backward");
  }
  reducer->end_backward();
  running.reset();
  progress.end_backward();
}

// A backward that did not end, because of an exception, and a scaled loss that has not had its own are given up.
void EngineBase::Impl::give_up_backward() {
  if (progress.is_in_backward()) restart_step();
  running.reset();
  scale_scope.reset();
}

// No gradient is held, and the next micro-batch is the first of its step.
void EngineBase::Impl::restart_step() noexcept {
  if (running && running->call) running->call->fail();
  if (reducer) reducer->abandon();
  running.reset();
  scale_scope.reset();
  for (auto& work : publishing) {
    try {
      work.wait();
    } catch (const std::exception&) {  // the exception that ended the step is the one to report
    }
  }
  publishing.clear();
  host_updates.clear();
  if (residency) residency->end();
  disarm();
  progress.restart_step();
  if (reporter) reporter->forget_step();
  start_next_step();
}

void EngineBase::Impl::drop_user_gradients() {
  for (auto& range : ranges)
    for (auto& parameter : range.parameters) parameter.tensor.mutable_grad().reset();
  keeps_user_grads = false;
}

void EngineBase::Impl::run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                                    const BackwardPass& pass) {
  GANNET_CHECK(outputs.size() == gradients.size(), "a gradient for each output");
  if (!running) running = std::make_unique<Running>();
  begin_backward(pass, /*is_marked=*/false);
  if (profiling) profiling->begin_backward();
  torch::autograd::backward(outputs, gradients, pass.retain_graph || pass.create_graph, pass.create_graph);
  if (profiling) profiling->end_backward();
  end_backward();
}

void EngineBase::backward(const at::Tensor& loss, const BackwardOptions& options) {
  Impl& impl = *impl_;
  if (impl.profiling) impl.profiling->pause();
  impl.check_loss(loss, "backward");
  impl.give_up_backward();
  try {
    Timers::Scope timed(impl.timers, Timed::kBackward);
    impl.take_loss(loss, options);
    // The scale and the division by the accumulation steps enter as backward's seed: no pass over the loss or the gradients.
    const at::Tensor seeds = at::full(loss.sizes(), impl.seed(options), loss.options().requires_grad(false));
    impl.run_backward({loss}, {seeds}, {impl.reduces(options), options.retain_graph, options.create_graph});
  } catch (...) {
    impl.restart_step();
    rethrow_as_ours("backward");
  }
}

void EngineBase::allreduce_gradients() {
  Impl& impl = *impl_;
  impl.require_usable("allreduce_gradients");
  if (!impl.reducer || impl.comm->size() == 1 || impl.reducer->is_reduced()) return;
  auto call = impl.process_group->world()->enter(*impl.world_group, "allreduce_gradients", impl.progress.global_steps + 1,
                                                 impl.agreed(impl.is_boundary()));
  Timers::Scope timed(impl.timers, Timed::kReduce);
  impl.reducer->begin_backward({true, false, false});
  impl.reducer->end_backward();
}

}  // namespace gannet
