#include "engine/evaluation.h"

#include <gannet/log.h>
#include <torch/nn/module.h>

#include "base/format.h"
#include "control/world.h"
#include "engine/construction.h"
#include "engine/gate.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

// Called by every rank, since the ranks exchange the new values.
void exchange(EngineBase::Impl& impl, bool trains) {
  const Call call = trains ? Call::kTrainOfOtherWeights : Call::kEvalOfOtherWeights;
  gate::require(impl, call);
  const auto watched = impl.process_group->world()->enter(*impl.world_group, name_of(call), impl.progress.global_steps);
  EvaluationWeights& weights = impl.updater.evaluation();
  if (!trains) {
    impl.audit();
    impl.updater.average().follow_masters();
    weights.enter(impl.progress.applied_steps);
  } else {
    if (const std::string name = impl.module_audit->written(); !name.empty())
      impl.module_audit->say_once(
          formatted("parameter '{}' was written while the engine evaluated: train() has put back what was "
                    "trained, without it (write after train())",
                    name));
    impl.module_audit->reclaim();
    weights.leave();
  }
  impl.module_audit->record();
}

}  // namespace

std::string evaluating_part(const EngineBase::Impl& impl) {
  if (impl.updater.average().is_on()) return "an engine with gannet.ema";
  return formatted("optimizer '{}'", impl.groups[0].optimizer->plugin().name());
}

void log_evaluation_weights(EngineBase::Impl& impl) noexcept try {
  if (impl.reducer && impl.updater.evaluation().are_in_use() && impl.is_first())
    log_info(
        formatted("an engine ended between eval() and train(): its module keeps the weights that {} evaluates with, and "
                  "not those that were trained",
                  evaluating_part(impl)));
} catch (const std::exception&) {  // a destructor has no caller to report to
}

void start_average(EngineBase::Impl& impl) {
  const auto& ema = impl.settings().ema;
  if (!ema.decay) return;
  if (!impl.reducer) {
    if (impl.is_first()) log_info("no effect: gannet.ema (the engine does not train)");
    return;
  }
  impl.updater.average().use({*ema.decay, ema.warmup, ema.update_after_step});
  for (Range& range : impl.store.ranges()) impl.store.add_average(range);
}

void EngineBase::train(bool on) try {
  Impl& impl = *impl_;
  const Entered entered(impl, on ? Call::kTrain : Call::kEval);
  const EvaluationWeights& weights = impl.updater.evaluation();
  if (impl.reducer && weights.are_in_use() == on && (on || weights.exist(impl.progress.applied_steps))) exchange(impl, on);
  impl.module->train(on);
  impl.passes.training = on;
} catch (...) {
  rethrow_as_ours(on ? "train" : "eval");
}

}  // namespace gannet
