// The schedule that a pipeline follows: a built-in one by name, a CSV file, the program's own, or
// the fastest one for the pass durations measured in this run ("auto").
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
  struct ScheduleConfig {
    std::string schedule;                     // gannet.pipeline.schedule
    std::optional<double> memory_limit = {};  // gannet.pipeline.memory_limit
  };
  /// `micro_batches`: the initial number per step. Throws Error(kConfig) if the schedule is invalid
  /// or rejects this size, memory limit or number of chunks; Error(kNotFound) for a missing file.
  ChosenSchedule(const ScheduleConfig& configured, const pipe::Options& options, uint32_t stages, int64_t micro_batches);

  /// The stage of each part of the list of layers.
  const std::vector<uint32_t>& stage_of() const { return stage_of_; }
  /// The schedule for a step with this many micro-batches. Throws Error(kConfig) if there is none.
  const Schedule& of(int64_t micro_batches);
  /// Whether there is such a schedule. Throws Error(kConfig) if the program returns an invalid one.
  bool exists(int64_t micro_batches);
  /// Whether "auto" still needs measured times; until it has them, it assumes equally long passes.
  bool wants_times() const { return is_auto_ && !times_; }
  /// From now on "auto" searches with these times. The parts keep their stages. Returns a log
  /// message: the choice for `micro_batches`, the times of the parts, and the schedule as CSV.
  std::string set_times(Times times, int64_t micro_batches);
  /// A hash of the actions, which ranks compare.
  uint64_t hash_of(int64_t micro_batches);

 private:
  Schedule made(int64_t micro_batches) const;
  FoundSchedule searched(int64_t micro_batches) const;
  struct CheckedSchedule {
    Schedule schedule;
    uint64_t hash;
  };
  const CheckedSchedule& checked(int64_t micro_batches);
  const CheckedSchedule& keep(int64_t micro_batches, Schedule schedule);

  std::string source_;  // for messages
  std::string name_;    // name of the built-in schedule; "": it is not built in
  std::optional<Schedule> from_file_;
  pipe::MakeSchedule make_;  // given by the program
  bool is_auto_ = false;
  std::optional<double> memory_limit_;
  std::optional<Times> times_;  // null: not measured
  std::optional<uint32_t> chunks_;
  uint32_t stages_;
  std::vector<uint32_t> stage_of_;
  std::map<int64_t, CheckedSchedule> checked_;  // by micro-batches
};

}  // namespace gannet::pipeline
