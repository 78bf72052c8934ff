// How many activations a rank keeps. An activation is a part's of one micro-batch; it is kept from
// F to B or W.
#pragma once

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Whether any action is a backward. Without one, forwards keep nothing.
bool has_backwards(const Schedule& schedule);
/// The change by one action of the number that its rank keeps: 1, 0 or -1.
int64_t change_of_alive(const Action& action);
/// The most that a rank keeps at once.
int64_t most_alive(const Schedule& schedule, size_t rank);

}  // namespace gannet::pipeline
