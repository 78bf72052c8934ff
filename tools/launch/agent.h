// A host's agent: `gannet node`, which `gannet run --hostfile` starts over ssh. It reads a plan
// from stdin, reports whether it can start it, and on `go` starts and supervises the ranks. Stdin
// is also its lifeline: when it closes, the ranks get SIGTERM, and SIGKILL after the grace period.
#pragma once

namespace gannet::launch {

// The body of `gannet node`; returns its exit code. Outcomes are reported in frames, not by this code.
int run_agent();

}  // namespace gannet::launch
