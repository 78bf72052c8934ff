// Hints for other libraries' names of optimizers and schedules: what to write instead.
//
//   hint_of_type("optimizer", "DeepSpeedCPUAdam");   // "write \"AdamW\" ... and zero_optimization.offload_optimizer ..."
//   hint_of_type("scheduler", "CosineAnnealingLR");  // "write \"cosine\" ..."
#pragma once

#include <string>

namespace gannet::config {

// `block`: "optimizer" or "scheduler". Returns "" for a name that no known library uses.
std::string hint_of_type(const std::string& block, const std::string& type);

}  // namespace gannet::config
