// The division of the list of layers into parts, and the stage of each part.
#pragma once

#include <gannet/pipe.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "params/rank_context.h"
#include "pipeline/chosen_schedule.h"

namespace gannet::pipeline {

struct Division {
  std::vector<size_t> bounds;           // [parts + 1]
  std::vector<uint32_t> stage_of_part;  // [parts]
  uint32_t stages = 1;

  uint32_t stage_of(size_t layer) const {
    return stage_of_part[static_cast<size_t>(std::upper_bound(bounds.begin(), bounds.end(), layer) - bounds.begin() - 1)];
  }
  std::vector<size_t> layers_of(uint32_t stage) const {
    std::vector<size_t> layers;
    for (size_t l = 0; l < bounds.back(); ++l)
      if (stage_of(l) == stage) layers.push_back(l);
    return layers;
  }
};

/// Divides by pipe::Options::bounds, or by the partition method of the program or the config.
/// Collective. Throws Error(kConfig) for an invalid division, and as measured_costs() does.
Division divided(const std::vector<Layer>& layers, const pipe::Options& options, const RankContext& ranks,
                 ChosenSchedule& schedule);

}  // namespace gannet::pipeline
