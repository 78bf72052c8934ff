#include "lr_schedule.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gannet {
namespace {

// A number of lr_scheduler_kwargs.
double number(const TrainingArguments& arguments, const char* name, double fallback) {
  const Value* value = arguments.lr_scheduler_kwargs.find(name);
  if (!value || value->is_null()) return fallback;
  if (!value->is_number())
    throw Error(ErrorCode::kArgument, std::string("lr_scheduler_kwargs: ") + name + " takes a number, found " + value->to_json());
  return value->as_number();
}

double cosine(double turns) { return 0.5 * (1 + std::cos(std::numbers::pi * turns)); }

}  // namespace

int64_t warmup_updates(const TrainingArguments& arguments, int64_t total) {
  return static_cast<int64_t>(arguments.warmup_steps >= 1 ? arguments.warmup_steps
                                                          : std::ceil(static_cast<double>(total) * arguments.warmup_steps));
}

double lr_factor(const TrainingArguments& arguments, double base_rate, int64_t step, int64_t total) {
  const std::string& type = arguments.lr_scheduler_type;
  if (type == "constant") return 1;
  const int64_t warmup = warmup_updates(arguments, total);
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  if (type == "constant_with_warmup") return 1;
  const double rest = static_cast<double>(std::max<int64_t>(1, total - warmup));
  const double progress = static_cast<double>(step - warmup) / rest;
  if (type == "linear") return std::max(0.0, static_cast<double>(total - step) / rest);
  if (type == "cosine") return std::max(0.0, cosine(number(arguments, "num_cycles", 0.5) * 2 * progress));
  if (type == "cosine_with_restarts")
    return progress >= 1 ? 0 : std::max(0.0, cosine(std::fmod(number(arguments, "num_cycles", 1) * progress, 1.0)));
  if (type == "cosine_with_min_lr") {
    const double least = number(arguments, "min_lr_rate", number(arguments, "min_lr", 0) / base_rate);
    return std::max(0.0, cosine(number(arguments, "num_cycles", 0.5) * 2 * progress) * (1 - least) + least);
  }
  if (type == "polynomial") {
    const double begin = base_rate, end = number(arguments, "lr_end", 1e-7);
    if (step > total) return end / begin;
    return ((begin - end) * std::pow(1 - progress, number(arguments, "power", 1)) + end) / begin;
  }
  if (type == "inverse_sqrt") {
    const double scale = number(arguments, "timescale", warmup > 0 ? static_cast<double>(warmup) : 10000);
    return 1 / std::sqrt((static_cast<double>(step) + scale - static_cast<double>(warmup)) / scale);
  }
  throw Error(ErrorCode::kArgument, "lr_scheduler_type '" + type + "' has no formula", "name a scheduler plugin in the config");
}

}  // namespace gannet
