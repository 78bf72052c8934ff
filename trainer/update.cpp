// One update: its micro-batches one after another, or a step of a pipeline with all of them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Type.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <string>
#include <utility>

#include "model_errors.h"

namespace gannet {

// `items`: counted items in each of this rank's micro-batches; `count`: micro-batches on every
// rank; `total`: items of all ranks. Returns this rank's contribution to the loss, in fp64.
at::Tensor TrainerBase::take_update(const std::vector<double>& items, int64_t count, double total) {
  return is_pipeline() ? take_pipeline_step(items, count, total) : take_micro_batches(count, total);
}

// backward() averages over ranks and by default divides by the accumulation steps. The update needs
// the sum over all micro-batches and ranks, divided once by the number of all items.
at::Tensor TrainerBase::take_micro_batches(int64_t count, double total) {
  const double ranks = engine_->world_size();
  at::Tensor local = at::zeros({}, at::TensorOptions(at::kDouble).device(engine_->device()));
  for (int64_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    micro_batches_left_ = count - i;
    const std::string where = "update " + std::to_string(state_.global_step + 1) + ", forward of the model";
    const at::Tensor sum = of_model(where, [&] { return measure_micro_batch(static_cast<size_t>(i)).loss; });
    const at::Tensor share = total > 0 ? sum / total : sum * 0;
    local += share.detach().to(at::kDouble);
    engine_->backward(share * ranks, {.scale_wrt_gas = false});
    if (is_last) fire(TrainerEventKind::kPreOptimizerStep);
    const StepResult result = engine_->step();
    if (!is_last) {
      fire(TrainerEventKind::kSubstepEnd);
      continue;
    }
    step_.applied_ = result.applied;
    step_.reason_ = result.reason;
    fire(TrainerEventKind::kOptimizerStep);
  }
  return local;
}

// A pipeline runs its micro-batches and the optimizer in one call.
void TrainerBase::list_events_without_effect() const {
  if (!is_pipeline() || !is_first()) return;
  for (const auto& [kind, member] : {std::pair(TrainerEventKind::kSubstepEnd, "on_substep_end"),
                                     std::pair(TrainerEventKind::kPreOptimizerStep, "on_pre_optimizer_step")})
    for (const TrainerCallback& callback : callbacks_)
      if (callback.handles(kind))
        log_warning(std::string(member) + " of the callback " + c10::demangle(callback.name().c_str()) +
                    " is not called: a pipeline runs all micro-batches of an update and its optimizer in one call");
}

// An epoch's last update may have fewer micro-batches than others. If no schedule is that short,
// the update repeats one with weight 0. train_batch() returns the mean over micro-batches and ranks
// of weight * loss, with the losses as means over their items.
at::Tensor TrainerBase::take_pipeline_step(const std::vector<double>& items, int64_t count, double total) {
  const int64_t micro_batches = has_pipeline_step_of(count) ? count : arguments_.gradient_accumulation_steps;
  pipeline_step_end_ = engine_->micro_steps() + micro_batches;
  const double ranks = engine_->world_size();
  std::vector<double> weights(static_cast<size_t>(micro_batches));
  for (size_t i = 0; i < items.size(); ++i)
    weights[i] = total > 0 ? items[i] * static_cast<double>(micro_batches) * ranks / total : 0;
  StepResult result;
  const std::string where = "update " + std::to_string(state_.global_step + 1) + " of the pipeline";
  const double loss = of_model(where, [&] { return train_pipeline(weights, result); });
  step_.applied_ = result.applied;
  step_.reason_ = result.reason;
  fire(TrainerEventKind::kOptimizerStep);
  return at::full({}, loss / ranks, at::TensorOptions(at::kDouble).device(engine_->device()));
}

}  // namespace gannet
