// Processes below another one, as /proc shows them now: children, their children, and so on.
//
// An orphan becomes a child of the nearest process above it that adopts (PR_SET_CHILD_SUBREAPER), so a daemon of a rank is found
// here whatever it did to its group, its session, its environment or its name.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gannet::launch {

// Below `root`, those that have ended excepted; `excluded` and what is below them are left out.
std::vector<pid_t> descendants_of(pid_t root, const std::vector<pid_t>& excluded);

// Kills all below this process, and all that bear the mark (launch/marked.h), until none is left or for a second.
void end_all_below(const std::vector<pid_t>& excluded, const std::string& mark);

}  // namespace gannet::launch
