// Tries a plugin file: opens it, checks it, and constructs each of its plugins once, as a run
// would.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "doctor/diagnosis.h"
#include "plugin/plugin.h"

namespace gannet::doctor {

struct ProbedFile {
  std::vector<FoundPlugin> plugins;  // at least one; if the file cannot be opened, those in its note, or one without a name
  // Only for a usable accelerator; "" otherwise.
  std::string default_comm, plugin_device;
  int64_t priority = GANNET_PRIORITY_UNSAID;
};

// Runs in a child process: a plugin that crashes is reported as broken, and its libraries are not
// loaded into this process.
ProbedFile probe(plugin::Registry& registry, const plugin::Candidate& candidate, std::chrono::seconds patience);

}  // namespace gannet::doctor
