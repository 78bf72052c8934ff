// Table of the values of lr_scheduler_type, each with its scheduler plugin and the arguments that
// it accepts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gannet::config {

struct LrScheduleType {
  std::string_view type;                 // "cosine", as in Hugging Face's argument
  std::string_view plugin;               // "cosine"
  bool warms_up = true;                  // accepts warmup_num_steps
  bool has_end = true;                   // needs total_num_steps
  std::vector<std::string> kwargs = {};  // keys of lr_scheduler_kwargs, which are the plugin's params
};

// Throws Error(kArgument) if there is no such type.
const LrScheduleType& lr_schedule_type(const std::string& type);

// Whether a scheduler plugin accepts any number of warm-up updates, including 0. (DeepSpeed's
// schedules need at least 1.)
bool may_start_without_warmup(std::string_view plugin);

}  // namespace gannet::config
