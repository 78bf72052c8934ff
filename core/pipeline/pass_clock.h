// Measures a step's passes on each part of the layers, to choose a schedule for their durations.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "params/rank_context.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

class PassClock {
 public:
  explicit PassClock(RankContext& ranks) : ranks_(ranks) {}
  /// Called at the start of a step. `chunks`: the number of chunks on this rank.
  void begin(bool measures, size_t chunks);
  bool measures() const { return measures_; }
  /// Runs a pass and adds its duration in seconds, without the waits before and after the pass.
  /// A whole backward counts as `input`.
  template <class Pass>
  void measure(double PassTimes::* of, size_t chunk, const Pass& pass) {
    if (!measures_) return pass();
    const auto start = now();
    pass();
    sums_[chunk].*of += std::chrono::duration<double>(now() - start).count();
  }
  /// Pass durations per micro-batch, on each part's slowest rank; a whole backward is split equally
  /// into input and weight. Collective. `own_parts`: the parts of this rank's chunks.
  Times times(const std::vector<uint32_t>& own_parts, size_t parts, int64_t micro_batches) const;

 private:
  std::chrono::steady_clock::time_point now() const;  // after waiting for the device

  RankContext& ranks_;
  bool measures_ = false;
  std::vector<PassTimes> sums_;  // [chunks] seconds
};

}  // namespace gannet::pipeline
