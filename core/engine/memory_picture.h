// The bytes of a step by what they are for, of this rank: for the metrics file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/impl.h"

namespace gannet {

/// At a boundary: "parameters", "states" (masters included), "gradients", "buffers" (gathered parameters, buckets, pages), and
/// "activations": the most that was there at once of all else that LibTorch's allocator gave out since the last boundary. Empty
/// where training is not on the CPU, or the program has an allocator of its own.
std::vector<std::pair<std::string, int64_t>> memory_picture(const EngineBase::Impl& impl);

}  // namespace gannet
