// Checks a batch against the inputs that a graph declares.
#pragma once

#include <c10/core/Device.h>
#include <gannet/exported.h>

#include "graph.h"

namespace gannet::exported {

// Throws Error(kArgument) at the first mismatch: a missing or unknown name, a wrong dtype, number
// of dimensions or device, a size out of range, or a relation between sizes that does not hold.
void require_batch(const GraphFile& file, const NamedBatch& batch, c10::Device device);

// "[s0, s1, 3]"; a symbol whose range is narrower than the export's default shows it: "[s0, s1 <=
// 32]".
std::string shape_text(const GraphFile& file, const Input& input);

}  // namespace gannet::exported
