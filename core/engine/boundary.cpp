#include "engine/boundary.h"

#include "base/format.h"
#include "control/world.h"
#include "engine/backward.h"
#include "engine/gate.h"
#include "engine/optimizer_reduction.h"
#include "engine/report.h"
#include "engine/ties.h"

namespace gannet::boundary {

void check_order(EngineBase::Impl& impl, Call of) {
  const char* const call = name_of(of);
  const bool is_pending = impl.passes.running != nullptr;
  if (impl.progress.is_in_backward()) impl.restart_step();
  impl.progress.check_step(is_pending, call);
  // Otherwise the gradients of two passes would be added up. After a load in the middle of a pass,
  // the call that ended its micro-batches is unknown.
  if (impl.progress.micro_in_step > 0 && !impl.passes.ended_by.empty() && impl.passes.ended_by != call)
    throw Error(
        ErrorCode::kOrder,
        formatted("{}() was called for micro-batch {} of a pass whose micro-batches so far ended with {}()", call,
                  impl.progress.micro_in_step + 1, impl.passes.ended_by),
        formatted("end all micro-batches of a pass with the same call (docs/program.md, Steps of two passes): this one with "
                  "{}(), or begin the pass again with zero_grad()",
                  impl.passes.ended_by));
  impl.passes.running.reset();  // left by a scaled loss that was abandoned
  impl.passes.scale_scope.reset();
  if (impl.is_boundary() && impl.comm->size() > 1 && !impl.reducer->is_reduced())
    throw Error(
        ErrorCode::kOrder,
        formatted("{}() is at a boundary, but the gradients were not averaged over the {} ranks", call, impl.comm->size()),
        formatted("run the last backward() of a step outside no_sync(), or call allreduce_gradients() before {}()", call));
}

StepResult end_micro_batch(EngineBase::Impl& impl, const char* call) {
  const int64_t of_step = impl.micro_batches_of_step();
  impl.progress.end_micro_batch();
  impl.passes.ended_by = call;
  if (impl.reporter && !impl.passes.has_loss()) impl.reporter->end_micro_batch();
  if (impl.settings().wall_clock_breakdown) report_times(impl, false);
  return {false, false, formatted("accumulating gradients: micro-batch {} of {}", impl.progress.micro_in_step, of_step)};
}

void begin(EngineBase::Impl& impl, StepScope& scope, const char* call) {
  impl.audit();
  impl.take_cleared_gradients();
  if (const std::string name = impl.reducer->leftover(); !name.empty())
    throw Error(ErrorCode::kOrder,
                formatted("{}() found a gradient in `.grad` of '{}' that this engine's backward did not make: of a "
                          "loss.backward(), of another engine's backward, or set by hand",
                          call, name),
                "call engine->backward(loss) for every loss that trains it, or requires_grad_(false) on parameters that another "
                "model's backward passes through; a gradient that is not wanted is dropped by zero_grad()");
  refuse_frozen(impl);
  scope.watch();
  impl.progress.begin_boundary();
  impl.store.disarm();
}

void reduce(EngineBase::Impl& impl) {
  Timers::Scope timed(impl.timers, TimedPhase::kReduce);
  impl.reducer->wait();
  if (impl.ties) impl.ties->sum_gradients(impl);
}

GradientCheck check(EngineBase::Impl& impl) {
  GradientCheck check;
  {
    Timers::Scope timed(impl.timers, TimedPhase::kCheck);
    HostGroup* const model = impl.mesh->model() ? &impl.mesh->model()->links().host : nullptr;
    check = check_gradients(impl.store.ranges(),
                            {impl.store.is_sharded() ? impl.host_group : nullptr, model, impl.mesh->is_first_replica(),
                             ranks_with_unreduced_gradients(impl), impl.reducer->unreduced_factor() / impl.reducer->mean_factor(),
                             impl.store.has_experts() && !impl.store.is_sharded() ? impl.expert_group : nullptr},
                            factor(impl));
  }
  if (impl.reporter) impl.reporter->fetch_loss();
  return check;
}

std::string not_finite(EngineBase::Impl& impl) {
  HostGroup* const ranks = impl.mesh->model()                                    ? impl.world_group
                           : impl.store.is_sharded() || impl.store.has_experts() ? impl.host_group
                                                                                 : ranks_with_unreduced_gradients(impl);
  return first_non_finite(impl.store.ranges(), impl.passes.loss_was_finite, [ranks](const std::string& text) {
    return ranks ? ranks->gather_texts(text) : std::vector<std::string>{text};
  });
}

double factor(const EngineBase::Impl& impl) { return impl.reducer->mean_factor() / impl.scaler.scale(); }

void bump_versions(EngineBase::Impl& impl) {
  for (auto& range : impl.store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p)
      if (auto& parameter = range.parameters[p]; !is_skipped(range, p, *impl.reducer) && !parameter.tensor.is_inference())
        parameter.tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace gannet::boundary
