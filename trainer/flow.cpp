// Decides from the strategies when to log, evaluate and save, before callbacks see the event, and
// fires the events.
#include <gannet/error.h>
#include <gannet/trainer_base.h>

#include <cmath>

namespace gannet {

void TrainerBase::flow_step_end() {
  const TrainingArguments& a = arguments_;
  const int64_t step = state_.global_step;
  const bool may_evaluate = a.eval_strategy == "steps" && a.eval_delay <= static_cast<double>(step);
  if (step == 1 && a.logging_first_step) control_.should_log = true;
  if (a.logging_strategy == "steps" && step % state_.logging_steps == 0) control_.should_log = true;
  if (may_evaluate && step % state_.eval_steps == 0) control_.should_evaluate = true;
  if (a.save_strategy == "steps" && step % state_.save_steps == 0) control_.should_save = true;
  if (step >= state_.max_steps) {
    control_.should_training_stop = true;
    if (may_evaluate) control_.should_evaluate = true;
    if (a.save_strategy == "steps") control_.should_save = true;
  }
}

void TrainerBase::flow_epoch_end() {
  const TrainingArguments& a = arguments_;
  if (a.logging_strategy == "epoch") control_.should_log = true;
  if (a.eval_strategy == "epoch" && a.eval_delay <= state_.epoch) control_.should_evaluate = true;
  if (a.save_strategy == "epoch") control_.should_save = true;
}

// The fractions have been resolved to updates by now, and after the rounding save_steps may not be
// a multiple of eval_steps.
void TrainerBase::check_steps_of_best_model() const {
  const TrainingArguments& a = arguments_;
  if (!a.load_best_model_at_end || a.eval_strategy != "steps" || a.save_strategy != "steps" ||
      state_.save_steps % state_.eval_steps == 0)
    return;
  throw Error(ErrorCode::kArgument,
              "load_best_model_at_end: of " + std::to_string(state_.max_steps) + " updates, every " +
                  std::to_string(state_.eval_steps) + " are evaluated and every " + std::to_string(state_.save_steps) +
                  " are saved (eval_steps " + Value(a.eval_steps.value_or(a.logging_steps)).to_json() + ", save_steps " +
                  Value(a.save_steps).to_json() + "), so that the best evaluation may have no checkpoint",
              "save_steps is a multiple of eval_steps: give save_steps " +
                  std::to_string((state_.save_steps / state_.eval_steps + 1) * state_.eval_steps) + ", or save_strategy best");
}

void TrainerBase::fire(TrainerEventKind kind, const Dict& logs, const Metrics& metrics) {
  const TrainerEvent event{arguments_, state_, engine_, logs, metrics};
  for (const auto& callback : callbacks_) callback.call(kind, event, control_);
}

void EarlyStopping::on_train_begin(const TrainerEvent& event, TrainerControl&) const {
  if (patience < 1) throw Error(ErrorCode::kArgument, "EarlyStopping: patience is " + std::to_string(patience), "at least 1");
  if (event.arguments.metric_for_best_model.empty())
    throw Error(ErrorCode::kArgument, "EarlyStopping has no metric to follow", "set metric_for_best_model, for example loss");
  if (event.arguments.eval_strategy == "no")
    throw Error(ErrorCode::kArgument, "EarlyStopping without evaluations", "set eval_strategy to steps or epoch");
}

// Called before the Trainer updates best_metric, which is still the best of the previous
// evaluations.
void EarlyStopping::on_evaluate(const TrainerEvent& event, TrainerControl& control) {
  std::string name = event.arguments.metric_for_best_model;
  if (!name.starts_with("eval_")) name = "eval_" + name;
  const auto found = event.metrics.find(name);
  if (found == event.metrics.end()) return;  // the Trainer raises the error
  const double now = found->second;
  const bool greater = event.arguments.greater_is_better.value_or(!name.ends_with("loss"));
  const auto& best = event.state.best_metric;
  const bool is_better = !best || ((greater ? now > *best : now < *best) && std::abs(now - *best) > threshold);
  waited = is_better ? 0 : waited + 1;
  if (waited >= patience) control.should_training_stop = true;
}

}  // namespace gannet
