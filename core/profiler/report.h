// A profile as text, in the shape that DeepSpeed's users know: summary, the top modules of each depth, then every module.
#pragma once

#include <gannet/profile.h>

#include <optional>
#include <string>

namespace gannet::profiler {

// The step of an engine that was profiled: its first micro-batch is what the profile counts.
struct Run {
  int64_t step = 0;
  uint32_t world_size = 1;
  int64_t micro_batch = 1, accumulation_steps = 1;
  int64_t zero_stage = 0;
  int64_t parameters_here = 0;      // elements that this rank keeps
  double recompute_fwd_factor = 0;  // of forward: computed once more in backward where no operator shows it
  double step_seconds = 0;          // the update
  double iteration_seconds = 0;     // all micro-batches and the update
  std::string places;               // where masters and states lie, when not in the device's memory
};

std::string report(const ModelProfile& profile, const ProfileText& text, const std::optional<Run>& run = std::nullopt);

}  // namespace gannet::profiler
