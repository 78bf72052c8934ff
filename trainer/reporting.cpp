// After an update and after an epoch: logs, evaluates and saves, in this order.
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <cstdio>
#include <limits>
#include <utility>

#include "progress_bar.h"

namespace gannet {
namespace {

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

}  // namespace

bool TrainerBase::is_first() const { return engine_->process_group()->rank() == 0; }

void TrainerBase::log_evaluate_save() {
  if (control_.should_log && state_.global_step > last_logged_) {
    log_training();
    agree_on_control();  // callbacks may have made requests in on_log
  }
  if (control_.should_evaluate) {
    const EvalLoopOutput result = evaluation_loop("eval", false);
    const bool is_new_best = judge(result.metrics);
    if (arguments_.save_strategy == "best") control_.should_save = is_new_best;
    if (const auto schedule = engine_->scheduler_handle(); schedule->type() == "ReduceLROnPlateau") {
      const std::string metric = arguments_.metric_for_best_model.empty() ? "loss" : arguments_.metric_for_best_model;
      const auto found = result.metrics.find(metric.starts_with("eval_") ? metric : "eval_" + metric);
      if (found != result.metrics.end()) schedule->step(found->second);
    }
    agree_on_control();
  }
  if (control_.should_save && last_saved_ != state_.global_step) {
    save_checkpoint(false);
    agree_on_control();
  }
  control_.should_log = control_.should_evaluate = control_.should_save = false;
}

void TrainerBase::log_training() {
  const double sum = over_ranks(loss_since_log_.item<double>());
  loss_since_log_.zero_();
  const int64_t losses = std::exchange(losses_since_log_, 0);
  losses_ += losses;
  Dict values{{"loss", losses > 0 ? sum / static_cast<double>(losses) : std::numeric_limits<double>::quiet_NaN()}};
  if (const auto norm = engine_->get_global_grad_norm()) values["grad_norm"] = *norm;
  values["learning_rate"] = last_learning_rate_;
  total_loss_ += sum;
  last_logged_ = state_.global_step;
  log(std::move(values), {});
}

void TrainerBase::log(Dict values, const Dict& times) {
  Dict logs = values;
  for (const auto& [name, value] : times.entries()) logs[name] = value;
  logs["epoch"] = state_.epoch;
  values["epoch"] = state_.epoch;
  values["step"] = state_.global_step;
  state_.log_history.push_back(values);

  std::string line;
  for (const auto& [name, value] : logs.entries())
    if (value.is_number()) {
      line += (line.empty() ? "" : ", ") + name + " " + short_number(value.as_number());
      // Hugging Face's names for these values in TensorBoard.
      const std::string shown = name.starts_with("eval_")   ? "eval/" + name.substr(5)
                                : name.starts_with("test_") ? "test/" + name.substr(5)
                                                            : "train/" + name;
      engine_->record(shown, value.as_number());
    }
  if (is_first()) {
    if (bar_) bar_->clear();
    log_info("update " + std::to_string(state_.global_step) + ": " + line);
  }
  fire(TrainerEventKind::kLog, logs);
}

}  // namespace gannet
