// Formats a profile as text in the layout of DeepSpeed's profiler: a summary, the top modules per
// depth, then every module, the operators and the memory.
#pragma once

#include <gannet/profile.h>

#include <optional>
#include <string>

namespace gannet::profiler {

// The profiled step of an engine. The profile counts its first micro-batch.
struct ProfiledStep {
  int64_t step = 0;
  uint32_t world_size = 1;
  int64_t micro_batch = 1, accumulation_steps = 1;
  int64_t zero_stage = 0;
  int64_t parameters_here = 0;      // number of elements on this rank
  double recompute_fwd_factor = 0;  // share of forward that backward recomputes without running observable operators
  double step_seconds = 0;          // duration of the update
  double iteration_seconds = 0;     // duration of all micro-batches and the update
  std::string places;               // where masters and states are, if not in the device's memory
};

std::string report(const ModelProfile& profile, const ProfileText& text, const std::optional<ProfiledStep>& run = std::nullopt);

}  // namespace gannet::profiler
