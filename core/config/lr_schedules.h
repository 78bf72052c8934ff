// The table of lr_scheduler_type: which scheduler plugin has the rule, and what it takes of the arguments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gannet::config {

struct LrScheduleType {
  std::string_view type;                 // "cosine", as Hugging Face's argument names it
  std::string_view plugin;               // "cosine"
  bool warms_up = true;                  // takes warmup_num_steps
  bool has_end = true;                   // needs total_num_steps
  std::vector<std::string> kwargs = {};  // of lr_scheduler_kwargs, under the names of the plugin's params
};

// Error(kArgument) where there is none of this name.
const LrScheduleType& lr_schedule_type(const std::string& type);

// Whether a scheduler plugin warms up for as many updates as it is given, 0 among them. (DeepSpeed's need at least 1.)
bool may_start_without_warmup(std::string_view plugin);

}  // namespace gannet::config
