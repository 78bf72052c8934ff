#include "argument_optimizer.h"

#include <cmath>

namespace gannet::arguments {
namespace {

enum OptimizerParams : unsigned { kBetas = 1, kEpsilon = 2 };  // in addition to lr and weight_decay

struct OptimizerMapping {
  const char *optim, *plugin;
  unsigned params;
};

constexpr OptimizerMapping kOptimizers[] = {
    {"adamw_torch", "AdamW", kBetas | kEpsilon},
    {"adamw_torch_fused", "AdamW", kBetas | kEpsilon},
    {"adafactor", "Adafactor", 0},
    {"adamw_bnb_8bit", "AdamW8bit", kBetas | kEpsilon},
    {"adamw_8bit", "AdamW8bit", kBetas | kEpsilon},
    {"lion_32bit", "Lion", kBetas},
    {"schedule_free_adamw", "AdamWScheduleFree", kBetas | kEpsilon},
    {"sgd", "SGD", 0},
    {"adagrad", "Adagrad", 0},
    {"rmsprop", "RMSprop", 0},
};

}  // namespace

std::vector<std::string> optimizers() {
  std::vector<std::string> names;
  for (const OptimizerMapping& one : kOptimizers) names.emplace_back(one.optim);
  return names;
}

Dict optimizer_entry(const TrainingArguments& a) {
  const OptimizerMapping* chosen = kOptimizers;
  for (const OptimizerMapping& one : kOptimizers)
    if (a.optim == one.optim) chosen = &one;
  Dict params{{"lr", a.learning_rate}};
  if (chosen->params & kBetas) params["betas"] = List{a.adam_beta1, a.adam_beta2};
  if (chosen->params & kEpsilon) params["eps"] = a.adam_epsilon;
  params["weight_decay"] = a.weight_decay;
  if (a.optim == "adafactor")  // as in transformers' Trainer: learning_rate and the schedule set the rate
    for (const char* name : {"scale_parameter", "relative_step"}) params[name] = false;
  if (a.optim == "schedule_free_adamw" && a.warmup_steps >= 1) params["warmup_steps"] = static_cast<int64_t>(a.warmup_steps);
  return {{"type", chosen->plugin}, {"params", std::move(params)}};
}

}  // namespace gannet::arguments
