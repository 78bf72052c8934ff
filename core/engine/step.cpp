// One boundary, in the order in which things happen: reduce (its end) -> check -> clip -> lr -> update -> publish -> report.
// What observes it is in step_scope.h, what each phase computes in grads/ and update/.
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/format.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/step_scope.h"
#include "grads/check.h"

namespace gannet {

StepResult EngineBase::step() {
  Impl& impl = *impl_;
  impl.check_step();
  if (!impl.is_boundary()) return impl.end_micro_batch();
  StepScope scope(impl);
  try {
    impl.begin_boundary(scope);
    const at::NoGradGuard no_grad;
    scope.begin();
    impl.reduce();
    StepResult result{true, true, ""};
    if (const GradientCheck check = impl.check(); check.finite) {
      const Schedule::Values next_rates = impl.schedule.next();  // a schedule that fails does so before anything has changed
      impl.begin_update(check.norm);
      impl.update(impl.clip(check.norm));
      impl.publish();
      impl.end_update();
      impl.schedule.advance(next_rates);
    } else {
      result = impl.skip();
    }
    impl.end_step(result.applied);
    scope.end(result);
    return result;
  } catch (...) {
    scope.fail();
  }
}

// What the program can call in the wrong order, before anything is touched.
void EngineBase::Impl::check_step() {
  require_usable("step");
  if (no_sync) throw Error(ErrorCode::kOrder, "step() was called inside no_sync()", "end the NoSync scope before step()");
  if (groups.empty() || (!groups[0].optimizer && !user_optimizer))
    throw Error(ErrorCode::kOrder, "step() was called, but there is no optimizer",
                "add an \"optimizer\" block to the config, or pass one to initialize");
  const bool is_pending = running != nullptr;
  if (progress.is_in_backward()) restart_step();
  progress.check_step(is_pending);
  running.reset();  // of a scaled loss that was given up
  scale_scope.reset();
  if (is_boundary() && comm->size() > 1 && !reducer->is_reduced())
    throw Error(ErrorCode::kOrder,
                formatted("step() is at a boundary, but the gradients were not averaged over the {} ranks", comm->size()),
                "run the last backward() of a step outside no_sync(), or call allreduce_gradients() before step()");
}

StepResult EngineBase::Impl::end_micro_batch() {
  progress.end_micro_batch();
  if (reporter) reporter->end_micro_batch();
  if (settings().wall_clock_breakdown) report_times(false);
  return {false, false,
          formatted("accumulating gradients: micro-batch {} of {}", progress.micro_in_step, settings().accumulation_steps)};
}

// The parameters and gradients are what this engine left, the ranks are together, and no operator is looked at any more.
void EngineBase::Impl::begin_boundary(StepScope& scope) {
  audit();
  if (const std::string name = reducer->leftover(keeps_user_grads); !name.empty())
    throw Error(ErrorCode::kOrder,
                formatted("step() found a gradient in `.grad` of '{}' that this engine's backward did not make: of a "
                          "loss.backward(), of another engine's backward, or set by hand",
                          name),
                "call engine->backward(loss) for every loss that trains it, or requires_grad_(false) on parameters that another "
                "model's backward passes through; a gradient that is not wanted is dropped by zero_grad()");
  scope.watch();
  if (const std::string held = residency ? residency->held() : ""; !held.empty())
    throw Error(
        ErrorCode::kOrder,
        formatted("step() was called while a zero::GatheredParameters guard holds '{}': the guard would keep its old value",
                  held),
        "end the guard before step()");
  progress.begin_boundary();
  disarm();
}

void EngineBase::Impl::reduce() {
  Timers::Scope timed(timers, Timed::kReduce);
  reducer->wait();
}

GradientCheck EngineBase::Impl::check() {
  GradientCheck check;
  {
    Timers::Scope timed(timers, Timed::kCheck);
    check =
        check_gradients(ranges, {*host_group, mesh->model() ? &mesh->model()->links().host : nullptr, mesh->is_first_replica()},
                        reducer->mean_factor() / scaler.scale());
  }
  if (reporter) reporter->fetch_loss();
  return check;
}

double EngineBase::Impl::clip(double norm) const {
  return clip_factor(norm, settings().gradient_clipping, reducer->mean_factor() / scaler.scale());
}

void EngineBase::Impl::begin_update(double norm) {
  progress.grad_norm = norm;
  progress.begin_update();
}

void EngineBase::Impl::end_update() {
  progress.end_update();
  for (auto& range : ranges)
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      auto& parameter = range.parameters[p];
      if (is_skipped(range, p))
        ++parameter.lag;
      else if (!parameter.tensor.is_inference())  // a graph that saved the old values says so in backward, as torch.optim's does
        parameter.tensor.unsafeGetTensorImpl()->bump_version();
    }
  progress.count_applied();
}

StepResult EngineBase::Impl::skip() {
  progress.grad_norm.reset();
  const std::string why = first_non_finite(ranges, loss_was_finite, mesh->model() != nullptr, [this](const std::string& text) {
    return (mesh->model() ? world_group : host_group)->gather_texts(text);
  });
  skip_policy.check_may_skip(progress.global_steps + 1, why);
  progress.count_skipped();
  return {false, true, skip_policy.reason(progress.global_steps + 1, why, progress.consecutive_skips, scaler)};
}

void EngineBase::Impl::end_step(bool applied) {
  if (skip_policy.is_fp16) scaler.update(!applied);
  progress.last_step_applied = applied;
  forget_gradients();
  record_parameters();
  progress.end_step(settings().train_batch_size);
  written_hash = 0;
  start_next_step();
}

void EngineBase::Impl::forget_gradients() {
  Timers::Scope timed(timers, Timed::kForget);
  reducer->forget();
  if (keeps_user_grads) drop_user_gradients();
}

// Work goes behind what the program has queued on the calling thread's current stream: its gradients came from there.
void* EngineBase::Impl::current_stream() const {
  if (!accelerator->has(GANNET_ACCELERATOR_STREAMS)) return nullptr;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return accelerator->native_stream(static_cast<uint32_t>(device.index()), stream.id());
}

}  // namespace gannet
