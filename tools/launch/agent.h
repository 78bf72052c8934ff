// The agent of a host: `gannet node`, which `gannet run --hostfile` starts there by ssh. It reads a plan from its
// stdin, reports whether it can start it, and on `go` starts and supervises the host's ranks. The same stdin is
// its lifeline: at its end the ranks get SIGTERM, and SIGKILL after the grace period.
#pragma once

namespace gannet::launch {

// The body of `gannet node`; returns its exit code. Outcomes are reported in frames, not by this code.
int run_agent();

}  // namespace gannet::launch
