// Starts the ranks of one machine, which may be a node of several (launch/node.h), and supervises them
// until the last one has ended: the body of `gannet run`.
//
//   int code = launch::run({.procs = 2, .command = {"./train", "--deepspeed_config", "ds_config.json"}});
//
// Output lines are prefixed with the rank (a single rank inherits the terminal). The launcher never
// waits for the output's reader (launch/output.h); when the reader ends, the ranks get SIGTERM.
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to the ranks; after the first three
// the ranks have LaunchOptions::grace_seconds to end. When a rank fails, the others get SIGTERM
// and, `failure_grace` later, SIGKILL; the cause is reported, and all ranks are restarted, at most
// LaunchOptions::max_restarts times. The result is the code of the rank that failed first, 128 +
// signal for a signal, or kStoppedExitCode if the ranks were asked to stop and saved. No process
// that a rank started outlives the launcher, daemons included (launch/guard.h).
#pragma once

#include <chrono>

#include "launch/plan.h"

namespace gannet::launch {

// Throws StartError if PROGRAM cannot be started, Error(kArgument) for options that cannot be met.
// Call it from a single-threaded process: it takes over the process's signals, and forks.
int run(const LaunchOptions& options, std::chrono::milliseconds failure_grace = std::chrono::seconds(5));

}  // namespace gannet::launch
