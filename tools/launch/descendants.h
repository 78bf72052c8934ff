// Descendants of a process, as /proc shows them now: children, their children, and so on.
//
// An orphan becomes a child of its nearest ancestor that adopts orphans (PR_SET_CHILD_SUBREAPER),
// so a daemon of a rank is found here even if it changed its group, its session, its environment or
// its name.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gannet::launch {

// The descendants of `root` that have not ended, without `excluded` and their descendants.
std::vector<pid_t> descendants_of(pid_t root, const std::vector<pid_t>& excluded);

// A process's state as ps shows it: 'S', 'D' (blocked in the kernel) ...; 0 if there is none.
char state_of(pid_t pid);

// Kills all descendants of this process and all processes with the mark (launch/marked.h), until
// none is left, or for 1 s.
void end_all_below(const std::vector<pid_t>& excluded, const std::string& mark);

}  // namespace gannet::launch
