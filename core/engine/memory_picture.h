// The bytes that this rank uses in a step, by purpose, for the metrics file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "grads/reducer.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// Call at a boundary. Returns the bytes of "parameters", "states" (masters included), "gradients",
/// "buffers" (gathered parameters, buckets, pages), and "activations": the peak, since the last
/// boundary, of everything else that LibTorch's allocator handed out. Empty if no engine has
/// requested a metrics file, if training is not on the CPU, or if the program has its own allocator.
std::vector<std::pair<std::string, int64_t>> memory_picture(const RankContext& context, const ParameterStore& store,
                                                            const Reducer& reducer);

}  // namespace gannet
