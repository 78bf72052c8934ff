// Checks that span several arguments: refused arguments that were set, and strategies that
// contradict one another.
#include <gannet/error.h>
#include <gannet/fill_auto.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "argument_table.h"

namespace gannet {

std::vector<std::string> arguments::contradictions(const TrainingArguments& a) {
  std::vector<std::string> wrong;
  // Messages mark values that are defaults, so that the user does not search for an argument that
  // was never given.
  const auto is_default = [&](const char* name) {
    const auto* row = arguments::find(name);
    return std::find(a.given.begin(), a.given.end(), name) == a.given.end() && row->get(a) == row->fallback();
  };
  if (a.max_steps == 0) wrong.push_back("max_steps is 0: give a number of updates, or -1 for num_train_epochs");
  if (a.fp16 && a.bf16) wrong.push_back("fp16 and bf16 are both on: choose one");
  if (a.load_best_model_at_end) {
    if (a.eval_strategy == "no") wrong.push_back("load_best_model_at_end needs evaluations: set eval_strategy to steps or epoch");
    if (a.save_strategy == "no")
      wrong.push_back("load_best_model_at_end needs checkpoints: set save_strategy to that of eval_strategy, or to best");
    else if (a.save_strategy != "best" && a.eval_strategy != "no" && a.save_strategy != a.eval_strategy)
      wrong.push_back("load_best_model_at_end: eval_strategy is " + a.eval_strategy + " and save_strategy is " + a.save_strategy +
                      (is_default("save_strategy") ? " (its default)" : "") +
                      ", so that the best evaluation may have no checkpoint; make them equal");
    else if (a.save_strategy == "steps" && a.eval_strategy == "steps") {
      const double every = a.eval_steps.value_or(a.logging_steps);
      // The two can be compared only if both are fractions or both are whole numbers; otherwise the
      // run must first turn the fraction into a number of updates.
      if ((every < 1) == (a.save_steps < 1) && std::abs(std::remainder(a.save_steps, every)) > 1e-9 * a.save_steps)
        wrong.push_back("load_best_model_at_end: save_steps (" + arguments::shown(a.save_steps) +
                        (is_default("save_steps") ? ", its default" : "") + ") must be a multiple of eval_steps (" +
                        arguments::shown(every) + (a.eval_steps ? "" : ", from logging_steps") + ")");
    }
    if (a.save_only_model)
      wrong.push_back("load_best_model_at_end reads a whole checkpoint, which save_only_model does not write");
  }
  if (a.save_strategy == "best" && a.eval_strategy == "no")
    wrong.push_back("save_strategy best needs evaluations: set eval_strategy to steps or epoch");
  if (a.save_strategy == "best" && a.metric_for_best_model.empty() && !a.load_best_model_at_end)
    wrong.push_back("save_strategy best needs metric_for_best_model, for example loss");
  if (a.lr_scheduler_type == "reduce_lr_on_plateau" && a.eval_strategy == "no")
    wrong.push_back("lr_scheduler_type reduce_lr_on_plateau needs evaluations: set eval_strategy to steps or epoch");
  try {
    check_lr_schedule(a.lr_scheduler_type, a.lr_scheduler_kwargs);
  } catch (const Error& error) {
    wrong.push_back(error.message());
  }
  if (a.log_level_replica.empty()) wrong.push_back("log_level_replica is empty");
  return wrong;
}

Dict TrainingArguments::changed() const {
  Dict values;
  const TrainingArguments defaults;
  for (const auto& row : arguments::rows())
    if (Value value = row.get(*this); value != row.get(defaults)) values[row.name] = std::move(value);
  if (!fp16_backend.empty()) values["fp16_backend"] = fp16_backend;
  if (!fp16_opt_level.empty()) values["fp16_opt_level"] = fp16_opt_level;
  return values;
}

Dict TrainingArguments::given_values() const {
  Dict values = changed();
  for (const std::string& name : given)
    if (const auto* row = arguments::find(name))
      if (Value value = row->get(*this); !value.is_null()) values[name] = std::move(value);
  return values;
}

void TrainingArguments::check() const {
  std::vector<std::string> wrong;
  bool is_unsupported = false;
  for (const auto& row : arguments::rows()) {
    try {
      TrainingArguments copy;
      const Value value = row.get(*this);
      if (!value.is_null() || row.is_optional) row.set(copy, value);
    } catch (const Error& error) {
      wrong.push_back(error.message());
      continue;
    }
    if (row.state == arguments::ArgumentState::kRefused && row.get(*this) != row.fallback()) {
      wrong.push_back("argument " + row.name + " is refused: " + row.reason);
      is_unsupported = true;
    }
  }
  for (const std::string& name : given)
    if (!arguments::find(name))
      wrong.push_back("given names '" + name + "', which is not an argument" + arguments::did_you_mean(name));
  for (std::string& one : arguments::contradictions(*this)) wrong.push_back(std::move(one));
  if (wrong.empty()) return;
  std::string all = wrong[0];
  for (size_t i = 1; i < wrong.size(); ++i) all += "\n  " + wrong[i];
  throw Error(is_unsupported && wrong.size() == 1 ? ErrorCode::kUnsupported : ErrorCode::kArgument, all,
              "docs/training_arguments.md lists what each argument does");
}

}  // namespace gannet
