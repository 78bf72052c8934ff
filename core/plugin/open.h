// Opening a plugin's file: once per process, never closed.
#pragma once

#include <vector>

#include "plugin/plugin.h"
#include "plugin/trust.h"

namespace gannet::plugin {

// The plugins of the file, in the order of its table. Throws Error(kPlugin): "plugin FILE ...: what, found, next step".
//
// With a list of trusted files nothing of the file runs unless the list has its hash; what is opened then is a copy in memory,
// the one that was hashed. A file that this process has opened before without a list is judged by what was opened.
const std::vector<const Plugin*>& open(const Candidate& candidate, const TrustList* trust = nullptr);

}  // namespace gannet::plugin
