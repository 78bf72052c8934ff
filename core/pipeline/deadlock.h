// Checks whether ranks that follow a schedule can deadlock if sends block.
#pragma once

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Runs the schedule without times; a send completes only when its receiver is ready. A rank does
/// not wait for its send, but the send occupies its lane: later messages of the rank in that lane,
/// sent or received, wait behind it. There are as many lanes as the built-in schedules need: one
/// each for activations and for gradients, to the next rank and to the previous one, and one for
/// each pair of ranks that are not neighbours, for chunks that wrap from the last rank to the
/// first. A receive enters its lane when the rank reaches the action that needs it.
///
/// Throws Error(kConfig) if the ranks deadlock. The message lists the action of each rank in the
/// cycle and what it waits for, lowest rank first. The schedule must be complete.
void check_deadlock(const Schedule& schedule);

}  // namespace gannet::pipeline
