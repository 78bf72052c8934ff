#include "config/lr_schedules.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace gannet::config {
namespace {

const std::vector<LrScheduleType>& table() {
  static const std::vector<LrScheduleType>& rows = *new std::vector<LrScheduleType>{
      {"linear", "WarmupDecayLR"},
      {"constant", "constant", false, false},
      {"constant_with_warmup", "WarmupLR", true, false},
      {"cosine", "cosine", true, true, {"num_cycles"}},
      {"cosine_with_restarts", "cosine_with_restarts", true, true, {"num_cycles"}},
      {"cosine_with_min_lr", "cosine_with_min_lr", true, true, {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr",
       "cosine_warmup_with_min_lr",
       true,
       true,
       {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"polynomial", "polynomial", true, true, {"lr_end", "power"}},
      {"inverse_sqrt", "inverse_sqrt", true, false, {"timescale"}},
      {"warmup_stable_decay",
       "warmup_stable_decay",
       true,
       true,
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"}},
      {"reduce_lr_on_plateau",
       "ReduceLROnPlateau",
       false,
       false,
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}},
  };
  return rows;
}

}  // namespace

const LrScheduleType& lr_schedule_type(const std::string& type) {
  std::vector<std::string> types;
  for (const LrScheduleType& row : table()) {
    if (row.type == type) return row;
    types.emplace_back(row.type);
  }
  throw Error(ErrorCode::kArgument,
              formatted("lr_scheduler_type {}: there is no such schedule{}", in_quotes(type), gannet::did_you_mean(type, types)),
              formatted("it is one of {}; or write a scheduler entry in the config", join(types, ", ")));
}

bool may_start_without_warmup(std::string_view plugin) {
  return std::any_of(table().begin(), table().end(),
                     [&](const LrScheduleType& row) { return row.plugin == plugin && row.plugin == row.type; });
}

}  // namespace gannet::config
