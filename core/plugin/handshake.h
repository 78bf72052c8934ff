// Whether an opened file keeps the contract: its table against the note, each descriptor, its functions, its schema.
#pragma once

#include <span>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::plugin {

// The descriptors of the table, which is as large as its symbol. Throws Error(kPlugin) with the bare reason.
std::vector<const gannet_descriptor*> shake_hands(std::span<const gannet_descriptor* const> table, const Candidate& note);

}  // namespace gannet::plugin
