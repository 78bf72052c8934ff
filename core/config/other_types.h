// Hints for other libraries' names of optimizers and schedules: what to write instead.
//
//   hint_of_type("optimizer", "DeepSpeedCPUAdam");   // "write \"AdamW\" ... and zero_optimization.offload_optimizer ..."
//   hint_of_type("scheduler", "CosineAnnealingLR");  // "write \"cosine\" ..."
#pragma once

#include <string>

namespace gannet::config {

// `block`: "optimizer" or "scheduler". For an unknown dotted name, suggests its last part; "": there is no hint.
std::string hint_of_type(const std::string& block, const std::string& type);

}  // namespace gannet::config
