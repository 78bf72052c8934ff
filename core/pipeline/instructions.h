// Converts a program's schedule from instructions on buffers to actions on micro-batches.
#pragma once

#include <gannet/pipe_schedule.h>

#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// The actions of one stage, which has one part. Throws Error(kConfig) with stage, step and
/// instruction if a buffer does not exist or does not hold what the instruction requires, if a live
/// buffer is overwritten or left over at the end, and for an instruction that is invalid on this
/// stage. validate() checks whether the stages fit together.
std::vector<Action> actions_of(const pipe::PipeSchedule& schedule);

}  // namespace gannet::pipeline
