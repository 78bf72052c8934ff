// Starts the ranks of one machine and supervises them until the last one has ended: the body of `gannet run`.
//
//   int code = launch::run({.procs = 2, .command = {"./train", "--deepspeed_config", "ds_config.json"}});
//
// Output comes line by line with the rank before it (one rank alone inherits the terminal); its reader is never waited for
// (launch/output.h), and when it ends the ranks get SIGTERM. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to the
// ranks; after the first three they have Options::grace_seconds. When a rank fails, the others get
// SIGTERM and, `failure_grace` later, SIGKILL; the cause is reported, and all ranks start again while Options::max_restarts
// lasts. The result is the code of the rank that failed first, 128 + signal for a signal, or kStoppedExitCode when the ranks
// were asked to stop and saved. Nothing that a rank started outlives the launcher, daemons included (launch/guard.h).
#pragma once

#include <chrono>

#include "launch/plan.h"

namespace gannet::launch {

// Throws StartError when PROGRAM cannot be started, Error(kArgument) on options that cannot be met, Error(kConfig) where another
// launcher started several of this one. Call it from a process
// without other threads: it takes the process's signals while it runs, and forks.
int run(const Options& options, std::chrono::milliseconds failure_grace = std::chrono::seconds(5));

}  // namespace gannet::launch
