// The schedule that a pipeline trains by: a built-in one by name, a CSV file, or one of the program.
#pragma once

#include <gannet/pipe.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

class ChosenSchedule {
 public:
  /// `configured`: gannet.pipeline.schedule. `micro_batches`: of a step, at the start. Throws
  /// Error(kConfig) for a schedule that is wrong (validate.h) or cannot be of this size, and
  /// Error(kNotFound) without the file.
  ChosenSchedule(const std::string& configured, const pipe::Options& options, uint32_t stages, int64_t micro_batches);

  /// The stage of each part of the list of layers.
  const std::vector<uint32_t>& stage_of() const { return stage_of_; }
  /// The schedule of a step of this many micro-batches. Throws Error(kConfig) if there is none.
  const Schedule& of(int64_t micro_batches);
  /// Of the actions: ranks compare it.
  uint64_t hash_of(int64_t micro_batches);

 private:
  Schedule made(int64_t micro_batches) const;
  struct Checked {
    Schedule schedule;
    uint64_t hash;
  };
  const Checked& checked(int64_t micro_batches);

  std::string source_;  // for messages
  std::string name_;    // of a built-in one; "": another kind
  std::optional<Schedule> from_file_;
  pipe::MakeSchedule make_;  // of the program
  std::optional<uint32_t> chunks_;
  uint32_t stages_;
  std::vector<uint32_t> stage_of_;
  std::map<int64_t, Checked> checked_;  // by micro-batches
};

}  // namespace gannet::pipeline
