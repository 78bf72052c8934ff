// The time and the memory of each layer, measured with one micro-batch, for the partition methods
// "time" and "memory".
#pragma once

#include <gannet/pipe.h>

#include <cstdint>
#include <vector>

#include "params/rank_context.h"

namespace gannet::pipeline {

struct LayerCost {
  double seconds = 0;      // forward and backward
  double kept_bytes = 0;   // allocated by a forward and needed by its backward
  int64_t parameters = 0;  // elements that require a gradient
};

/// Runs the layers one by one on rank 0, the last with the loss, three times each; the fastest run
/// counts. Lazy modules exist only while measured; parameters, buffers and RNG states are restored.
/// Collective; every rank gets the same costs. `where`: the method's source, for messages. Throws
/// Error(kConfig) without a usable pipe::Options::sample, and Error(kArgument) if a layer throws.
std::vector<LayerCost> measured_costs(const std::vector<Layer>& layers, const pipe::Options& options, const RankContext& ranks,
                                      const std::string& where);

}  // namespace gannet::pipeline
