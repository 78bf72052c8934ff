// Finds a schedule for given pass times, among the built-in ones and ones generated for them.
//
//   const FoundSchedule found = search({.stages = 4, .micro_batches = 8, .times = {1, 1.2, 0.8}, .memory = 4});
//   found.name;              // "zb-v", or "made for these times"
//   found.simulated.total;
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

struct SearchRequest {
  uint32_t stages = 1;
  int64_t micro_batches = 1;
  PassTimes times = {};               // durations of a rank's passes; the same for every rank
  double link = 0;                    // see Times::link
  std::optional<double> memory = {};  // the most activations that a rank may keep, counted as in SimulatedStep::peaks
};

struct FoundSchedule {
  std::string name;
  Schedule schedule;
  SimulatedStep simulated;
};

/// Returns the schedule with the shortest step; among equally long ones, the one that keeps the
/// fewest activations, then the first of built_in_names(). Throws Error(kConfig) if none stays
/// within `memory`, naming the one that keeps the fewest.
///
/// Orders are made by simulation: whenever a rank is free, it runs a backward that is ready, else a
/// forward if memory allows it, else a weight pass. This is repeated for several memory limits, for
/// whole and split backwards, and for parts in a loop and in a V. The result is never longer than
/// the best built-in schedule, since those are candidates too, but not proven to be the shortest.
/// Where stages^2 * micro_batches is above 2^22, the built-in schedules are the only candidates.
FoundSchedule search(const SearchRequest& wanted);

/// The same for parts that are already assigned to ranks; each part has its own times.
FoundSchedule search_order(const std::vector<uint32_t>& rank_of, int64_t micro_batches, const Times& times,
                           std::optional<double> memory);

}  // namespace gannet::pipeline
