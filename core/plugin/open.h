// Opening a plugin's file: once per process, never closed.
#pragma once

#include <vector>

#include "plugin/plugin.h"

namespace gannet::plugin {

// The plugins of the file, in the order of its table. Throws Error(kPlugin): "plugin FILE ...: what, found, next step".
const std::vector<const Plugin*>& open(const Candidate& candidate);

}  // namespace gannet::plugin
