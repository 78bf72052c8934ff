// Finds a schedule for given times: the built-in ones, and orders that are made for these times.
//
//   const Found found = search({.stages = 4, .micro_batches = 8, .times = {1, 1.2, 0.8}, .memory = 4});
//   found.name;              // "zb-v", or "made for these times"
//   found.simulated.total;
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

struct Wanted {
  uint32_t stages = 1;
  int64_t micro_batches = 1;
  PassTimes times = {};               // of a rank's passes, the same on each
  double link = 0;                    // as Times::link
  std::optional<double> memory = {};  // the most activations that a rank may keep, as Simulated::peaks
};

struct Found {
  std::string name;
  Schedule schedule;
  Simulated simulated;
};

/// The shortest step. Of two that are equally long, the one that keeps less, and of those the first
/// of built_in_names(). Throws Error(kConfig) if no schedule keeps as little as `memory`, naming the
/// one that keeps the least.
///
/// Orders are made by simulating ranks that take, whenever they are free, a backward that is ready,
/// else a forward if the memory allows it, else a weight pass: for several limits of memory, for
/// whole and split backwards, and for parts as a loop and as a V. The result is never longer than the
/// best built-in one, since those are among the choices. It is not proven to be the shortest of all.
Found search(const Wanted& wanted);

/// The same for parts that are already on their ranks, each with its own times.
Found search_order(const std::vector<uint32_t>& rank_of, int64_t micro_batches, const Times& times, std::optional<double> memory);

}  // namespace gannet::pipeline
