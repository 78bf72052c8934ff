// Counts the activations that a rank keeps. An activation is what one part keeps for one
// micro-batch, from F to B or W.
#pragma once

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Whether any action is a backward. Without one, forwards keep nothing.
bool has_backwards(const Schedule& schedule);
/// The change that an action makes to the number of activations on its rank: 1, 0 or -1.
int64_t change_of_alive(const Action& action);
/// The most activations that a rank keeps at once; 0 for a schedule without backwards.
int64_t most_alive(const Schedule& schedule, size_t rank);

}  // namespace gannet::pipeline
