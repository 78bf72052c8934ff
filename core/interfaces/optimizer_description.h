// Reads an optimizer plugin's description (gannet_optimizer_description). Throws Error(kPlugin)
// with only the reason if entries are unknown or contradictory; Optimizer::describe adds the
// plugin's name.
#pragma once

#include <string>
#include <vector>

#include "interfaces/optimizer.h"

namespace gannet::description {

[[noreturn]] inline void bad(const std::string& reason) { throw Error(ErrorCode::kPlugin, reason); }

void check(const gannet_optimizer_description& found, const gannet_optimizer_api& api);
std::vector<Optimizer::State> read_states(const gannet_optimizer_description& found);
std::vector<Optimizer::Sum> read_sums(const gannet_optimizer_description& found);

}  // namespace gannet::description
