// The schedule that a pipeline trains by: a built-in one by name, a CSV file, the program's own, or
// the shortest one for this run's times ("auto").
#pragma once

#include <gannet/pipe.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule.h"
#include "pipeline/search.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

class ChosenSchedule {
 public:
  struct Configured {
    std::string schedule;                     // gannet.pipeline.schedule
    std::optional<double> memory_limit = {};  // gannet.pipeline.memory_limit
  };
  /// `micro_batches`: those of a step, at the start. Throws Error(kConfig) for an invalid schedule (validate.h), one that
  /// cannot have this size, or a memory limit or chunks that it cannot use; Error(kNotFound) without the file.
  ChosenSchedule(const Configured& configured, const pipe::Options& options, uint32_t stages, int64_t micro_batches);

  /// The stage of each part of the list of layers.
  const std::vector<uint32_t>& stage_of() const { return stage_of_; }
  /// The schedule of a step of this many micro-batches. Throws Error(kConfig) if there is none.
  const Schedule& of(int64_t micro_batches);
  /// Whether there is one. Throws Error(kConfig) if the program returns an invalid one.
  bool exists(int64_t micro_batches);
  /// Whether it still needs a step's times. Until then "auto" assumes that all passes take equally long.
  bool wants_times() const { return is_auto_ && !times_; }
  /// From now on "auto" searches with these times. The parts stay where they are. Returns a text for
  /// the log: the choice for `micro_batches`, the times of the parts, and the schedule as CSV.
  std::string set_times(Times times, int64_t micro_batches);
  /// A hash of the actions; ranks compare it.
  uint64_t hash_of(int64_t micro_batches);

 private:
  Schedule made(int64_t micro_batches) const;
  Found searched(int64_t micro_batches) const;
  struct Checked {
    Schedule schedule;
    uint64_t hash;
  };
  const Checked& checked(int64_t micro_batches);
  const Checked& keep(int64_t micro_batches, Schedule schedule);

  std::string source_;  // for messages
  std::string name_;    // of a built-in one; "": another kind
  std::optional<Schedule> from_file_;
  pipe::MakeSchedule make_;  // of the program
  bool is_auto_ = false;
  std::optional<double> memory_limit_;
  std::optional<Times> times_;  // as measured
  std::optional<uint32_t> chunks_;
  uint32_t stages_;
  std::vector<uint32_t> stage_of_;
  std::map<int64_t, Checked> checked_;  // by micro-batches
};

}  // namespace gannet::pipeline
