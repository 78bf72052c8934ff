// Whether ranks that follow a schedule can come to wait for each other, if sends block.
#pragma once

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Runs the schedule without times, with sends that wait for their receiver. A rank does not wait
/// for its send, but the send holds its lane: later messages of the rank in that lane, in and out,
/// pass after it. Lanes are as many as the built-in schedules need: one each for activations and
/// for gradients, to the next rank and to the previous one, and one for each pair of ranks that are
/// not neighbours, as where chunks wrap from the last rank to the first. A receive enters its lane
/// when the rank arrives at the action that needs it.
///
/// Throws Error(kConfig) where the ranks stand still, naming the first rank of the circle, its
/// action, and what each rank of the circle waits for. The schedule has all its actions.
void check_deadlock(const Schedule& schedule);

}  // namespace gannet::pipeline
