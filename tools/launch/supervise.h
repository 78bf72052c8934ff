// What a launcher of ranks and a head of several hosts share.
#pragma once

#include <cstdint>
#include <functional>

#include "launch/attempt.h"

namespace gannet::launch {

// Makes attempts until one succeeds, or no restart is left or allowed; tells their reports, waits for the reader of
// the output, and returns the exit code.
int supervise(const LaunchOptions& options, Session& session, const std::function<AttemptOutcome(uint32_t restart)>& attempt);

// Opens /dev/null in place of a closed stdout or stderr (`>&-`), whose number the next opened file would get.
void keep_descriptors_apart();

}  // namespace gannet::launch
