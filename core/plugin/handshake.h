// Checks an opened plugin file against the contract: that its table agrees with the note, and that
// each descriptor, its functions and its schema are valid.
#pragma once

#include <span>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::plugin {

// Returns the descriptors in the table. `table` covers the whole exported symbol. Throws
// Error(kPlugin) with only the reason.
std::vector<const gannet_descriptor*> shake_hands(std::span<const gannet_descriptor* const> table, const Candidate& note);

}  // namespace gannet::plugin
