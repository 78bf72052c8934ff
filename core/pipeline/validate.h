// Checks that a schedule can train: it computes everything exactly once, and ranks that follow it
// never deadlock.
//
//   validate(from_csv(text, "mine.csv"));   // throws for the first action that is wrong
#pragma once

#include <optional>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Throws Error(kConfig) with rank, position in row (from 1), action and reason unless all hold:
///   1. every part is on a rank of the schedule, and every action is for a part on its own rank;
///   2. no action occurs twice, and a part's backward of a micro-batch is B, or I and W;
///   3. what an action needs from its own rank comes before it: F before B and I, I before W, and
///      the neighbouring part if it is on the same rank;
///   4. nothing is missing: every part has F and a backward for every micro-batch. A forward-only
///      schedule (inference) has no backwards at all;
///   5. two ranks exchange activations, and gradients, in the same order on both ends: lanes are
///      ordered;
///   6. no deadlock if sends block, see deadlock.h;
///   7. with `buffers`: no rank ever has more than this number of activations alive, where each
///      (part, micro-batch) counts as one, from F to B or W.
void validate(const Schedule& schedule, std::optional<int64_t> buffers = std::nullopt);

}  // namespace gannet::pipeline
