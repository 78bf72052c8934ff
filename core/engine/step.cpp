// One boundary, in the order in which things happen: reduce (its end) -> check -> clip -> lr -> update -> publish -> report.
// What observes it is in step_scope.h, what each phase computes in grads/ and update/.
#include <ATen/core/grad_mode.h>

#include "base/format.h"
#include "control/world.h"
#include "engine/backward.h"
#include "engine/evaluation.h"
#include "engine/impl.h"
#include "engine/own_reduction.h"
#include "engine/recomputation.h"
#include "engine/report.h"
#include "engine/step_scope.h"
#include "engine/ties.h"
#include "grads/check.h"

namespace gannet {

namespace {

// What the program can call in the wrong order, before anything is touched.
void check_step(EngineBase::Impl& impl) {
  impl.require_usable("step");
  require_training_weights(impl, "step");
  if (impl.passes.no_sync)
    throw Error(ErrorCode::kOrder, "step() was called inside no_sync()", "end the NoSync scope before step()");
  if (impl.groups.empty() || (!impl.groups[0].optimizer && !impl.user_optimizer))
    throw Error(ErrorCode::kOrder, "step() was called, but there is no optimizer",
                "add an \"optimizer\" block to the config, or pass one to initialize");
  const bool is_pending = impl.passes.running != nullptr;
  if (impl.progress.is_in_backward()) impl.restart_step();
  impl.progress.check_step(is_pending);
  impl.passes.running.reset();  // of a scaled loss that was given up
  impl.passes.scale_scope.reset();
  if (impl.is_boundary() && impl.comm->size() > 1 && !impl.reducer->is_reduced())
    throw Error(ErrorCode::kOrder,
                formatted("step() is at a boundary, but the gradients were not averaged over the {} ranks", impl.comm->size()),
                "run the last backward() of a step outside no_sync(), or call allreduce_gradients() before step()");
}

StepResult end_micro_batch(EngineBase::Impl& impl) {
  const int64_t of_step = impl.micro_batches_of_step();
  impl.progress.end_micro_batch();
  if (impl.reporter) impl.reporter->end_micro_batch();
  if (impl.settings().wall_clock_breakdown) report_times(impl, false);
  return {false, false, formatted("accumulating gradients: micro-batch {} of {}", impl.progress.micro_in_step, of_step)};
}

// The parameters and gradients are what this engine left, the ranks are together, and no operator is looked at any more.
void begin_boundary(EngineBase::Impl& impl, StepScope& scope) {
  impl.audit();
  if (const std::string name = impl.reducer->leftover(impl.passes.keeps_user_grads); !name.empty())
    throw Error(ErrorCode::kOrder,
                formatted("step() found a gradient in `.grad` of '{}' that this engine's backward did not make: of a "
                          "loss.backward(), of another engine's backward, or set by hand",
                          name),
                "call engine->backward(loss) for every loss that trains it, or requires_grad_(false) on parameters that another "
                "model's backward passes through; a gradient that is not wanted is dropped by zero_grad()");
  refuse_frozen(impl);
  scope.watch();
  if (const std::string held = impl.store.held(); !held.empty())
    throw Error(
        ErrorCode::kOrder,
        formatted("step() was called while a zero::GatheredParameters guard holds '{}': the guard would keep its old value",
                  held),
        "end the guard before step()");
  impl.progress.begin_boundary();
  impl.store.disarm();
}

void reduce(EngineBase::Impl& impl) {
  Timers::Scope timed(impl.timers, Timed::kReduce);
  impl.reducer->wait();
  if (impl.ties) impl.ties->sum_gradients(impl);
}

GradientCheck check(EngineBase::Impl& impl) {
  GradientCheck check;
  {
    Timers::Scope timed(impl.timers, Timed::kCheck);
    HostGroup* const model = impl.mesh->model() ? &impl.mesh->model()->links().host : nullptr;
    check = check_gradients(impl.store.ranges(),
                            {impl.store.is_sharded() ? impl.host_group : nullptr, model, impl.mesh->is_first_replica(),
                             ranks_with_own_gradients(impl), impl.reducer->own_factor() / impl.reducer->mean_factor(),
                             impl.store.has_experts() && !impl.store.is_sharded() ? impl.expert_group : nullptr},
                            impl.reducer->mean_factor() / impl.scaler.scale());
  }
  if (impl.reporter) impl.reporter->fetch_loss();
  return check;
}

double clip(const EngineBase::Impl& impl, double norm) {
  return clip_factor(norm, impl.settings().gradient_clipping, impl.reducer->mean_factor() / impl.scaler.scale());
}

void begin_update(EngineBase::Impl& impl, double norm) {
  impl.progress.grad_norm = norm;
  impl.progress.begin_update();
}

// Shards go out while others are updated.
void update(EngineBase::Impl& impl, double factor) {
  if (!impl.user_optimizer) return impl.updater.update(factor, impl.progress.applied_steps, *impl.reducer);
  Timers::Scope timed(impl.timers, Timed::kUpdate);
  impl.user_optimizer->update(factor, impl.store.ranges(), impl.groups, *impl.reducer, impl.comm->size());
}

void end_update(EngineBase::Impl& impl) {
  impl.progress.end_update();
  for (auto& range : impl.store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      auto& parameter = range.parameters[p];
      if (is_skipped(range, p, *impl.reducer))
        ++parameter.lag;
      else if (!parameter.tensor.is_inference())  // a graph that saved the old values says so in backward, as torch.optim's does
        parameter.tensor.unsafeGetTensorImpl()->bump_version();
    }
  impl.progress.count_applied();
  if (impl.torch_optimizer) impl.torch_optimizer->show_states(impl.store, impl.progress.applied_steps);
}

StepResult skip(EngineBase::Impl& impl) {
  impl.progress.grad_norm.reset();
  HostGroup* const ranks = impl.mesh->model()                                    ? impl.world_group
                           : impl.store.is_sharded() || impl.store.has_experts() ? impl.host_group
                                                                                 : ranks_with_own_gradients(impl);
  const std::string why = first_non_finite(impl.store.ranges(), impl.passes.loss_was_finite, [ranks](const std::string& text) {
    return ranks ? ranks->gather_texts(text) : std::vector<std::string>{text};
  });
  impl.skip_policy.check_may_skip(impl.progress.global_steps + 1, why);
  impl.progress.count_skipped();
  return {false, true,
          impl.skip_policy.reason(impl.progress.global_steps + 1, why, impl.progress.consecutive_skips, impl.scaler)};
}

void end_step(EngineBase::Impl& impl, bool applied) {
  if (impl.skip_policy.is_fp16) impl.scaler.update(!applied);
  impl.progress.last_step_applied = applied;
  forget_gradients(impl);
  impl.module_audit->record();
  const auto& settings = impl.settings();
  impl.progress.end_step(settings.train_batch_size / settings.accumulation_steps * impl.micro_batches_of_step());
  impl.module_audit->end_step();
  if (impl.torch_optimizer) impl.torch_optimizer->end_step();
  impl.start_next_step();
}

}  // namespace

StepResult EngineBase::step() {
  Impl& impl = *impl_;
  check_step(impl);
  if (!impl.is_boundary()) return end_micro_batch(impl);
  StepScope scope(impl);
  try {
    begin_boundary(impl, scope);
    const at::NoGradGuard no_grad;
    scope.begin();
    reduce(impl);
    StepResult result{true, true, ""};
    if (const GradientCheck found = check(impl); found.finite) {
      Schedule::Next next_rates = impl.schedule.next();  // a schedule that fails does so before anything has changed
      begin_update(impl, found.norm);
      update(impl, clip(impl, found.norm));
      impl.store.publish();
      end_update(impl);
      impl.schedule.advance(std::move(next_rates));
    } else {
      result = skip(impl);
    }
    end_step(impl, result.applied);
    end_step_of_recomputation(impl);
    scope.end(result);
    return result;
  } catch (...) {
    scope.fail();
  }
}

}  // namespace gannet
