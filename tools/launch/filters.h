// --include and --exclude: which hosts and slots of a hostfile a run uses.
//
//   "worker-1@worker-2:0,2"     all slots of worker-1, slots 0 and 2 of worker-2
#pragma once

#include <string>
#include <vector>

#include "launch/hostfile.h"

namespace gannet::launch {

// The hosts and slots that remain, in the hostfile's order; a host without slots is dropped. "":
// no filter. `any_slot`: any slot may be included, since the devices could not be counted. Throws
// Error(kArgument) for both filters at once, an unknown host or slot, or a malformed filter.
std::vector<Host> filtered(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude,
                           bool any_slot = false);

}  // namespace gannet::launch
