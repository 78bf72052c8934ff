// Simulates a schedule: when each action starts and ends, how long ranks are idle, and how many
// activations they keep.
//
//   const Schedule schedule = built_in("zb-h1", {.stages = 4, .micro_batches = 8});
//   simulate(schedule, even_times(schedule, {.forward = 1, .input = 1, .weight = 1})).total;   // 27
#pragma once

#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Times in any unit; B takes input + weight.
struct PassTimes {
  double forward = 1, input = 1, weight = 1;
};

struct Times {
  std::vector<PassTimes> of_part;  // [parts]
  double link = 0;                 // from the end of an action until another rank has its result
};

/// Gives every rank the same times. A rank with several parts divides its times equally among them.
Times even_times(const Schedule& schedule, const PassTimes& of_rank, double link = 0);

struct SimulatedStep {
  struct Span {
    double start, end;
  };
  std::vector<std::vector<Span>> spans;  // [ranks][actions of the rank], as Schedule::actions
  double total = 0;                      // until the last action of any rank has ended
  double idle_share = 0;                 // of all ranks' time
  std::vector<double> idle_shares;       // [ranks] of a rank's time
  /// [ranks] The most activations that a rank keeps at once, from F to B or W. One micro-batch
  /// through all parts of the rank counts as 1, so with 2 chunks each counts as 1/2. 0 for a
  /// forward-only schedule, which keeps nothing.
  std::vector<double> peaks;
};

/// Every action starts as soon as the previous one on its rank has ended and its inputs are
/// available; links carry any number of messages at once. Calls validate() first and throws its
/// errors; throws Error(kArgument) for a time that is negative or not finite.
SimulatedStep simulate(const Schedule& schedule, const Times& times);

}  // namespace gannet::pipeline
