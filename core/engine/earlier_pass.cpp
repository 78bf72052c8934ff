#include "engine/earlier_pass.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/format.h"
#include "control/world.h"
#include "engine/backward.h"
#include "engine/boundary.h"
#include "engine/gate.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

using CapabilityTest = bool (Optimizer::*)() const;

std::string name_of_optimizer(const EngineBase::Impl& impl) {
  return impl.groups.empty() || !impl.groups[0].optimizer ? impl.optimizer_name() : impl.groups[0].optimizer->plugin().name();
}

// Returns whether some group's optimizer has the capability. The program's own optimizers never do.
bool optimizer_has(const EngineBase::Impl& impl, CapabilityTest capability) {
  return !impl.user_optimizer && std::any_of(impl.groups.begin(), impl.groups.end(), [&](const Group& group) {
    return group.optimizer && (group.optimizer.get()->*capability)();
  });
}

void require_capability(const EngineBase::Impl& impl, const char* call, CapabilityTest capability, const char* what,
                        const char* bit, const char* example) {
  if (optimizer_has(impl, capability)) return;
  throw Error(ErrorCode::kUnsupported,
              formatted("{}() was called, and optimizer '{}' has no {} (it lacks the capability {})", call,
                        name_of_optimizer(impl), what, bit),
              formatted("leave the call out, or choose an optimizer that has it, such as {}", example));
}

void refuse_twice(const EngineBase::Impl& impl, const char* call, bool EarlierPasses::* done) {
  if (!impl.passes.earlier || !(*impl.passes.earlier.*done)) return;
  throw Error(ErrorCode::kOrder, formatted("{}() was called twice in step {}", call, impl.progress.global_steps + 1),
              "the pass after it ends with step(); abandon_step() begins the step again");
}

// Returns the frozen parameters, sorted.
std::vector<const void*> frozen_now(const EngineBase::Impl& impl) {
  std::vector<const void*> frozen;
  for (const Range& range : impl.store.ranges())
    for (const TrainedParameter& parameter : range.parameters)
      if (!parameter.tensor.requires_grad()) frozen.push_back(parameter.tensor.unsafeGetTensorImpl());
  std::sort(frozen.begin(), frozen.end());
  return frozen;
}

// Returns whether a parameter was frozen after perturb() moved it. The update leaves it out, so
// nothing else restores what the model reads.
bool has_frozen_since(const EngineBase::Impl& impl) {
  const std::vector<const void*>& before = impl.passes.earlier->frozen;
  const std::vector<const void*> now = frozen_now(impl);
  return !std::includes(before.begin(), before.end(), now.begin(), now.end());
}

// Ends a pass before the step's last one: reduces and checks its gradients, and calls `use` if all
// gradients of the step so far were finite.
template <class Use>
StepResult end_earlier_pass(EngineBase::Impl& impl, const char* call, bool EarlierPasses::* done, const Use& use) {
  if (!impl.is_boundary()) return boundary::end_micro_batch(impl, call);
  const int64_t micro_batches = impl.micro_batches_of_step();
  StepScope scope(impl, call);
  try {
    boundary::begin(impl, scope, call);
    const at::NoGradGuard no_grad;
    scope.begin();
    boundary::reduce(impl);
    EarlierPasses passes = impl.passes.earlier.value_or(EarlierPasses{});
    passes.micro_batches = micro_batches;
    passes.*done = true;
    StepResult result{true, true, ""};
    if (!boundary::check(impl).finite) {
      const std::string why = boundary::not_finite(impl);
      impl.skip_policy.check_may_skip(impl.progress.global_steps + 1, why);
      if (passes.not_finite.empty()) passes.not_finite = formatted("in the pass that {}() ended, {}", call, why);
    }
    if (passes.not_finite.empty()) {
      use();
      passes.has_moved = passes.is_perturbed;
      if (done == &EarlierPasses::is_perturbed) passes.frozen = frozen_now(impl);
    } else {
      result = {false, true, formatted("step {} will be skipped: {}", impl.progress.global_steps + 1, passes.not_finite)};
    }
    forget_gradients(impl);
    impl.module_audit->record();
    impl.progress.end_pass();
    if (impl.reporter) impl.reporter->end_pass();
    impl.passes.earlier = std::move(passes);
    return result;
  } catch (...) {
    scope.fail();
  }
}

}  // namespace

void require_second_gradient(const EngineBase::Impl& impl) {
  const SecondGradient& second = impl.updater.second_gradient();
  if (impl.user_optimizer || impl.passes.skips_step() || second.is_kept() || !second.is_wanted(impl.progress.applied_steps))
    return;
  throw Error(ErrorCode::kOrder,
              formatted("step {} of optimizer '{}' takes a second gradient, and none was kept: step() was called without a "
                        "keep_second_gradient() before",
                        impl.progress.global_steps + 1, name_of_optimizer(impl)),
              "where engine->wants_second_gradient() is true, run forward and backward with the second loss first and end that "
              "pass with engine->keep_second_gradient() (docs/optimizers.md); zero_grad() drops the gradients so far");
}

void warn_if_not_perturbed(EngineBase::Impl& impl) {
  if ((impl.passes.earlier && impl.passes.earlier->is_perturbed) || !optimizer_has(impl, &Optimizer::perturbs)) return;
  impl.module_audit->say_once(
      formatted("optimizer '{}' takes the gradient of a step at perturbed parameters, and a step was taken without perturb(): it "
                "was an ordinary one (docs/program.md, Steps of two passes)",
                name_of_optimizer(impl)));
}

void restore_perturbed(EngineBase::Impl& impl, bool publishes) {
  Perturbation& perturbation = impl.updater.perturbation();
  perturbation.restore();  // does nothing on a rank that has no part of any parameter
  if (!impl.passes.earlier || !impl.passes.earlier->has_moved || !(publishes || has_frozen_since(impl))) return;
  perturbation.publish();
  boundary::bump_versions(impl);
}

void refuse_writes_while_perturbed(const EngineBase::Impl& impl) {
  if (!impl.passes.earlier || !impl.passes.earlier->is_perturbed) return;
  const std::string name = impl.module_audit->written();
  if (name.empty()) return;
  throw Error(
      ErrorCode::kOrder,
      formatted("parameter '{}' was written between perturb() and step(), which puts back what it was before perturb()", name),
      "call abandon_step(), and write parameters before the first forward() of a step");
}

void forget_earlier_passes(EngineBase::Impl& impl) noexcept {
  impl.passes.earlier.reset();
  impl.passes.ended_by.clear();
  impl.updater.perturbation().forget();
  impl.updater.second_gradient().drop();
  if (impl.reporter) impl.reporter->forget_passes();
}

StepResult EngineBase::perturb() {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kPerturb);
  require_capability(impl, "perturb", &Optimizer::perturbs, "perturbation", "PERTURBS", "SAM");
  boundary::check_order(impl, Call::kPerturb);
  refuse_twice(impl, "perturb", &EarlierPasses::is_perturbed);
  return end_earlier_pass(impl, "perturb", &EarlierPasses::is_perturbed, [&impl] {
    impl.progress.begin_update();
    impl.updater.perturb({boundary::factor(impl), impl.progress.applied_steps, *impl.reducer});
    impl.store.publish();
    impl.progress.end_update();
    boundary::bump_versions(impl);
  });
}

bool EngineBase::wants_second_gradient() const {
  const Impl& impl = *impl_;
  return optimizer_has(impl, &Optimizer::takes_second_gradients) && !impl.updater.second_gradient().is_kept() &&
         !(impl.passes.earlier && impl.passes.earlier->has_second) &&
         impl.updater.second_gradient().is_wanted(impl.progress.applied_steps);
}

StepResult EngineBase::keep_second_gradient() {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kKeepSecondGradient);
  require_capability(impl, "keep_second_gradient", &Optimizer::takes_second_gradients, "use for a second gradient",
                     "SECOND_GRADIENT", "Sophia");
  boundary::check_order(impl, Call::kKeepSecondGradient);
  refuse_twice(impl, "keep_second_gradient", &EarlierPasses::has_second);
  SecondGradient& second = impl.updater.second_gradient();
  if (!second.is_wanted(impl.progress.applied_steps))
    throw Error(ErrorCode::kOrder,
                formatted("keep_second_gradient() was called, and step {} of optimizer '{}' takes no second gradient",
                          impl.progress.global_steps + 1, name_of_optimizer(impl)),
                "ask engine->wants_second_gradient() first; zero_grad() drops the gradients so far");
  return end_earlier_pass(impl, "keep_second_gradient", &EarlierPasses::has_second, [&] {
    second.drop();  // a pass that failed while it kept a second gradient leaves it behind
    second.keep(boundary::factor(impl), impl.progress.applied_steps);
    if (impl.reporter) impl.reporter->forget_loss();
  });
}

void EngineBase::abandon_step() try {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kAbandonStep);
  const auto call = impl.process_group->world()->enter(*impl.world_group, "abandon_step", impl.progress.global_steps + 1);
  const at::NoGradGuard no_grad;
  give_up_backward(impl);
  if (impl.passes.earlier) {
    impl.module_audit->reclaim();
    restore_perturbed(impl, /*publishes=*/true);
    impl.module_audit->record();
    forget_earlier_passes(impl);
  }
  zero_grad();
} catch (...) {
  rethrow_as_ours("abandon_step");
}

}  // namespace gannet
