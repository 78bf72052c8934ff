#include "state/saved_numbers.h"

#include <gannet/error.h>

#include "base/format.h"
#include "checkpoint/numbers.h"

namespace gannet {
const Value& saved_value(const checkpoint::Opened& found, const char* key) {
  if (const Value* there = found.document().find(key)) return *there;
  throw Error(ErrorCode::kCorrupt, formatted("{}: its manifest has no '{}'", found.path(), key), "was it saved by an engine?");
}

void check_numbers(const checkpoint::Opened& found, bool is_fp16, bool with_states) {
  const std::string at = formatted("{}: ", found.path());
  const auto count = [&](const char* key, int64_t least) {
    checkpoint::checked_count(saved_value(found, key).as_int(), formatted("{}'{}'", at, key), least);
  };
  for (const char* key :
       {"global_steps", "skipped_steps", "consecutive_skips", "global_samples", "micro_steps", "schedule_position"})
    count(key, 0);
  count("accumulation_steps", 1);
  if (is_fp16) {
    const Value& scaler = saved_value(found, "loss_scaler");
    checkpoint::checked_loss_scale(scaler.at("scale").as_number(), formatted("{}the loss scale", at));
    for (const char* key : {"iteration", "last_overflow_iteration", "hysteresis_left"})
      checkpoint::checked_count(scaler.at(key).as_int(), formatted("{}the loss scale's '{}'", at, key), -1);
  }
  if (!with_states) return;
  count("applied_steps", 0);
  size_t g = 0;
  for (const Value& group : saved_value(found, "groups").as_list()) {
    for (const auto& [name, number] : group.at("hyper").as_dict().entries())
      checkpoint::checked_hyperparameter(name, number.as_number(), formatted("{}{} of group {}", at, name, g));
    ++g;
  }
}

// Files that do not name a precision next to the loss scale either have a config, or are imports of
// runs with unknown precision.
std::string precision_of(const checkpoint::Opened& found) {
  if (const Value* precision = saved_value(found, "loss_scaler").as_dict().find("precision")) return precision->as_string();
  const Value* config = found.document().find("config");
  const Value* enabled = config && config->is_dict() ? config->as_dict().find("/fp16/enabled") : nullptr;
  return enabled && enabled->is_bool() && enabled->as_bool() ? "fp16" : "";
}

}  // namespace gannet
