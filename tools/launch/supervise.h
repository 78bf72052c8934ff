// Code shared by the launcher of one host's ranks and the head of a multi-host run.
#pragma once

#include <cstdint>
#include <functional>

#include "launch/attempt.h"

namespace gannet::launch {

// Makes attempts until one succeeds, or no restart is left or allowed; prints their reports, waits
// for the output's reader, and returns the exit code. `turn`: called repeatedly during a pause
// before a restart; it waits for an event, for at most a second.
int supervise(const LaunchOptions& options, Session& session, const std::function<AttemptOutcome(uint32_t restart)>& attempt,
              const std::function<void()>& turn = {});

// Reports how much of the ranks' output was dropped since the last call, if any.
void report_dropped(Session& session);

// Opens /dev/null in place of a closed stdout or stderr (`>&-`), whose number the next opened file would get.
void keep_descriptors_apart();

}  // namespace gannet::launch
