// Wraps a forward in the gate, autocast, the gathering of parameters, recomputation and timers.
#include "engine/forward.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "control/world.h"
#include "engine/gate.h"
#include "engine/operator_errors.h"

namespace gannet {
namespace {

// An evaluation, under NoGradGuard or after eval(), is not part of a step.
bool trains_now(const EngineBase::Impl& impl) { return impl.reducer && impl.passes.training && at::GradMode::is_enabled(); }

}  // namespace

// An exception caught by the program on one rank only is detected at the next call of all ranks.
void rethrow_from_forward(EngineBase::Impl& impl) {
  if (trains_now(impl)) ++impl.progress.caught_errors;
  rethrow_of_operators(impl, *impl.module, "forward");
}

void begin_forward(EngineBase::Impl& impl) {
  Calls::Entered entered(impl.calls, name_of(Call::kForward));
  const bool trains = trains_now(impl);
  gate::require(impl, Call::kEvaluatingForward);
  if (impl.progress.is_in_backward()) impl.restart_step();  // the program's backward, through scale(), threw
  if (trains) gate::require(impl, Call::kForward);
  if (trains) impl.audit();
  if (impl.trace && trains) impl.trace->at(impl.progress.global_steps + 1, impl.progress.micro_in_step);
  if (impl.reporter) impl.reporter->begin_forward(trains);
  impl.passes.forward_timed.emplace(impl.timers, trains ? TimedPhase::kForward : TimedPhase::kEvaluate);
  if (impl.store.gathers()) {
    if (!impl.passes.forward_call)
      impl.passes.forward_call.emplace(impl.process_group->world()->watch(), impl.watched_group(), "forward",
                                       impl.progress.global_steps + 1, "", control::Watch::Call::kAtOnce);
    impl.store.begin_forward(trains);
  }
  if (impl.profiling) impl.profiling->begin_forward();
  impl.passes.activations.emplace(impl.activations, impl.module, trains);
  // A graph holds a parameter's cast copy anyway. Without a graph, cached copies of all parameters
  // would live until forward ends.
  if (impl.passes.autocast_dtype)
    impl.passes.autocast.emplace(impl.device.type(), *impl.passes.autocast_dtype,
                                 /*caches_casts=*/at::GradMode::is_enabled() || !impl.store.gathers());
  entered.keep();  // until end_forward
}

void finish_forward(EngineBase::Impl& impl) {
  if (impl.profiling) impl.profiling->finish_forward();
  impl.store.meet("the end of forward");
}

void end_forward(EngineBase::Impl& impl) {
  struct CallExit {
    ~CallExit() { calls.leave(); }
    Calls& calls;
  } const leave{impl.calls};
  impl.passes.autocast.reset();
  impl.passes.activations.reset();
  impl.passes.forward_timed.reset();
  if (trains_now(impl)) impl.progress.end_forward();
  impl.passes.forward_call.reset();
  if (!impl.progress.holds_micro_batch()) {  // otherwise the loss may still use parameters, and backward will
    impl.store.end_pass();
    impl.store.disarm();
  }
  if (impl.profiling) impl.profiling->end_forward();
}

void EngineBase::begin_forward() { gannet::begin_forward(*impl_); }
void EngineBase::finish_forward() { gannet::finish_forward(*impl_); }
void EngineBase::end_forward() { gannet::end_forward(*impl_); }
void EngineBase::rethrow_from_forward() { gannet::rethrow_from_forward(*impl_); }

}  // namespace gannet
