// What other libraries call an optimizer or a schedule, and what to write here instead.
//
//   hint_of_type("optimizer", "DeepSpeedCPUAdam");   // "write \"AdamW\" ... and zero_optimization.offload_optimizer ..."
//   hint_of_type("scheduler", "CosineAnnealingLR");  // "write \"cosine\" ..."
#pragma once

#include <string>

namespace gannet::config {

// `block`: "optimizer" or "scheduler". "" for a name that no library known here has.
std::string hint_of_type(const std::string& block, const std::string& type);

}  // namespace gannet::config
