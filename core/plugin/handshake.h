// Checks an opened file against the contract: its table against the note, each descriptor, its
// functions, its schema.
#pragma once

#include <span>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::plugin {

// Returns the table's descriptors; the table is as large as its symbol. Throws Error(kPlugin) with
// the bare reason.
std::vector<const gannet_descriptor*> shake_hands(std::span<const gannet_descriptor* const> table, const Candidate& note);

}  // namespace gannet::plugin
