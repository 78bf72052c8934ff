// Checks a batch against what a graph takes.
#pragma once

#include <c10/core/Device.h>
#include <gannet/exported.h>

#include "graph.h"

namespace gannet::exported {

// Throws Error(kArgument) for the first thing that does not fit: a name that is missing or unknown, a dtype, a number of
// dimensions, a device, a size out of its range, a relation between sizes that does not hold.
void require_batch(const GraphFile& file, const NamedBatch& batch, c10::Device device);

// "[s0, s1, 3]", with a symbol's range where it has one beyond the export's smallest: "[s0, s1 <= 32]".
std::string shape_text(const GraphFile& file, const Input& input);

}  // namespace gannet::exported
