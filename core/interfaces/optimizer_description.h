// Reads what an optimizer plugin says of itself (gannet_optimizer_description), and refuses what this host does not know or what
// contradicts itself: Error(kPlugin) with the reason alone, to which Optimizer::describe adds who it is.
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
