// The time and the memory of each layer, measured with one micro-batch, for the partition methods
// "time" and "memory".
#pragma once

#include <gannet/pipe.h>

#include <cstdint>
#include <vector>

#include "params/rank_context.h"

namespace gannet::pipeline {

struct LayerCost {
  double seconds = 0;      // of forward and backward
  double kept_bytes = 0;   // that a forward allocates and its backward needs
  int64_t parameters = 0;  // elements that require a gradient
};

/// Runs the layers one after another on rank 0, the last one with the loss, each three times: the
/// shortest counts. A lazy module is built for its layer alone, and dropped. Parameters, buffers and
/// random numbers are as before. Every rank calls it, and gets the same costs. `where`: the source of the
/// method, for messages. Throws Error(kConfig) without a usable pipe::Options::sample, and Error(kArgument) if a layer throws.
std::vector<LayerCost> measured_costs(const std::vector<Layer>& layers, const pipe::Options& options, const RankContext& ranks,
                                      const std::string& where);

}  // namespace gannet::pipeline
