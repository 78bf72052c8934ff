// Opens a plugin's file. Each file is opened once per process and never closed.
#pragma once

#include <vector>

#include "plugin/plugin.h"
#include "plugin/trust.h"

namespace gannet::plugin {

// Returns the plugins of the file, in the order of its table. Throws Error(kPlugin) with the file,
// the reason and a next step.
//
// With a trust list, no code of the file runs unless the list has its hash, and the file that is
// opened is the in-memory copy that was hashed. If this process opened the file earlier without a
// list, the bytes that were opened then are checked.
const std::vector<const Plugin*>& open(const Candidate& candidate, const TrustList* trust = nullptr);

}  // namespace gannet::plugin
