// The world sizes with which a Comm is checked, and the functions that run a check on them.
#pragma once

#include <functional>
#include <vector>

#include "kit/check.h"
#include "kit/comm/peer.h"
#include "kit/comm/world.h"

namespace gannet::kit {

// Throws SkippedCheck if the Comm works on a device's memory, which the kit does not have.
void require_host_memory(const Subject& subject);

// The world sizes, from 1 to kMostRanks, that the Comm supports; throws CheckFailure if the ranks
// disagree, or if there is none.
std::vector<uint32_t> sizes_of(const Subject& subject);

// Runs the body on the ranks of every supported world with at least `least` ranks; throws
// SkippedCheck if there is none.
void on_every_world(const Subject& subject, uint32_t least, const std::string& what, const std::function<void(Peer&)>& body);
// Runs the body in one world of `size` ranks; throws SkippedCheck if that size is not supported.
void on_ranks(const Subject& subject, uint32_t size, const std::string& what, const std::function<void(Peer&)>& body,
              const WorldOptions& options = {});

}  // namespace gannet::kit
