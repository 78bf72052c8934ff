// The bytes of a step by what they are for, of this rank: for the metrics file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "grads/reducer.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// At a boundary: "parameters", "states" (masters included), "gradients", "buffers" (gathered parameters, buckets, pages), and
/// "activations": the most that was there at once of all else that LibTorch's allocator gave out since the last boundary. Empty
/// where training is not on the CPU, or the program has an allocator of its own.
std::vector<std::pair<std::string, int64_t>> memory_picture(const RankContext& context, const ParameterStore& store,
                                                            const Reducer& reducer);

}  // namespace gannet
