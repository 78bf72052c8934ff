// Opens a plugin's file: once per process, never closed.
#pragma once

#include <vector>

#include "plugin/plugin.h"
#include "plugin/trust.h"

namespace gannet::plugin {

// The plugins of the file, in table order. Throws Error(kPlugin): "plugin FILE ...: what, found,
// next step".
//
// With a trust list, no code of the file runs unless the list has its hash; the file opened is then
// the same in-memory copy that was hashed. A file that this process opened earlier without a list
// is judged by what was opened.
const std::vector<const Plugin*>& open(const Candidate& candidate, const TrustList* trust = nullptr);

}  // namespace gannet::plugin
