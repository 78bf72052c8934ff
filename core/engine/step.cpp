// One boundary, in order of execution: the end of reduce -> check -> clip -> lr -> update ->
// publish -> report. The phases up to the check are in boundary.h, the observers in step_scope.h,
// and the computation of each phase in grads/ and update/.
#include <ATen/core/grad_mode.h>

#include "engine/backward.h"
#include "engine/boundary.h"
#include "engine/earlier_pass.h"
#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/recomputation.h"
#include "engine/report.h"
#include "engine/step_scope.h"
#include "grads/check.h"

namespace gannet {

namespace {

double clip(const EngineBase::Impl& impl, double norm) {
  return clip_factor(norm, impl.settings().gradient_clipping, boundary::factor(impl));
}

void begin_update(EngineBase::Impl& impl, double norm) {
  impl.progress.grad_norm = norm;
  impl.progress.begin_update();
}

// Updates the parameters. Finished shards are sent while others are updated.
void update(EngineBase::Impl& impl, double factor, double loss) {
  if (!impl.user_optimizer) {
    Host::ShowMetric show;
    if (impl.reporter) show = [&](const std::string& name, double value) { impl.reporter->record(name, value); };
    return impl.updater.update({factor, impl.progress.applied_steps, *impl.reducer, loss, std::move(show)});
  }
  Timers::Scope timed(impl.timers, TimedPhase::kUpdate);
  Average& average = impl.updater.average();
  if (average.is_on()) average.begin(impl.progress.applied_steps + 1);
  impl.user_optimizer->update(factor, impl.store.ranges(), impl.groups, *impl.reducer, impl.comm->size());
  if (average.is_on()) average.move_all();
}

void end_update(EngineBase::Impl& impl) {
  impl.progress.end_update();
  boundary::bump_versions(impl);
  for (auto& range : impl.store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p)
      if (is_skipped(range, p, *impl.reducer)) ++range.parameters[p].lag;
  impl.progress.count_applied();
  if (impl.torch_optimizer) impl.torch_optimizer->show_states(impl.store, impl.progress.applied_steps);
}

StepResult skip(EngineBase::Impl& impl) {
  impl.progress.grad_norm.reset();
  const std::string why = impl.passes.skips_step() ? impl.passes.earlier->not_finite : boundary::not_finite(impl);
  impl.skip_policy.check_may_skip(impl.progress.global_steps + 1, why);
  impl.progress.count_skipped();
  return {false, true,
          impl.skip_policy.reason(impl.progress.global_steps + 1, why, impl.progress.consecutive_skips, impl.scaler)};
}

// Called for a step that is not taken. Restores the masters from before perturb(), and the
// parameters that the model reads.
void put_back(EngineBase::Impl& impl) {
  impl.progress.begin_update();
  restore_perturbed(impl, /*publishes=*/true);
  impl.progress.end_update();
}

void end_step(EngineBase::Impl& impl, bool applied) {
  if (impl.skip_policy.is_fp16) impl.scaler.update(!applied);
  impl.progress.last_step_applied = applied;
  forget_gradients(impl);
  forget_earlier_passes(impl);
  impl.module_audit->record();
  impl.store.forget_displaced();
  const auto& settings = impl.settings();
  impl.progress.end_step(settings.train_batch_size / settings.accumulation_steps * impl.micro_batches_of_step());
  impl.module_audit->end_step();
  if (impl.torch_optimizer) impl.torch_optimizer->end_step();
  impl.start_next_step();
}

}  // namespace

StepResult EngineBase::step() {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kStep);
  boundary::check_order(impl, Call::kStep);
  if (!impl.is_boundary()) return boundary::end_micro_batch(impl, "step");
  require_second_gradient(impl);
  StepScope scope(impl);
  try {
    boundary::begin(impl, scope, "step");
    const at::NoGradGuard no_grad;
    scope.begin();
    boundary::reduce(impl);
    StepResult result{true, true, ""};
    if (const GradientCheck found = boundary::check(impl); found.finite && !impl.passes.skips_step()) {
      Schedule::NextValues next_rates = impl.schedule.next();  // if the schedule fails, nothing has changed yet
      const double loss = loss_for_optimizers(impl);           // if a rank is lost here, nothing has changed yet
      begin_update(impl, found.norm);
      warn_if_not_perturbed(impl);
      restore_perturbed(impl, /*publishes=*/false);
      update(impl, clip(impl, found.norm), loss);
      impl.store.publish();
      end_update(impl);
      impl.schedule.advance(std::move(next_rates));
    } else {
      result = skip(impl);
      put_back(impl);
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
