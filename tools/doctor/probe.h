// A plugin file tried out: opened, checked, and what it provides made once, as a run would make it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "doctor/diagnosis.h"
#include "plugin/plugin.h"

namespace gannet::doctor {

struct Probed {
  std::vector<PluginFound> plugins;  // at least one: a file that cannot be opened has what its note promises, or no name at all
  // Of an accelerator that is usable; "" otherwise.
  std::string default_comm, plugin_device;
};

// In a process of its own: a plugin that crashes is one that is broken, and what it loads stays away from this process.
Probed probe(plugin::Registry& registry, const plugin::Candidate& candidate, std::chrono::seconds patience);

}  // namespace gannet::doctor
