// Converts a program's schedule from instructions on buffers to actions on micro-batches.
#pragma once

#include <gannet/pipe_schedule.h>

#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// The actions of one stage, which has one part. Throws Error(kConfig) with stage, step and
/// instruction for a buffer that does not exist or does not hold what the instruction takes, for a
/// live one that is filled again or left at the end, and for an instruction that the stage cannot
/// have. validate() checks whether all stages fit together.
std::vector<Action> actions_of(const pipe::PipeSchedule& schedule);

}  // namespace gannet::pipeline
