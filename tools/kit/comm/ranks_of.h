// On how many ranks a Comm is checked, and what every check of one begins with.
#pragma once

#include <functional>
#include <vector>

#include "kit/check.h"
#include "kit/comm/peer.h"
#include "kit/comm/world.h"

namespace gannet::kit {

// Throws Skipped where its memory is a device's that the kit does not have.
void require_host_memory(const Subject& subject);

// The worlds of 1 to kMostRanks that it serves; Failed where the ranks disagree, or none is served.
std::vector<uint32_t> sizes_of(const Subject& subject);

// Runs the body on the ranks of every world that it serves and that has at least `least` ranks; Skipped where there is none.
void on_every_world(const Subject& subject, uint32_t least, const std::string& what, const std::function<void(Peer&)>& body);
// In one world, of `size` ranks; Skipped where it does not serve so many.
void on_ranks(const Subject& subject, uint32_t size, const std::string& what, const std::function<void(Peer&)>& body,
              const WorldOptions& options = {});

}  // namespace gannet::kit
