// Hints that an estimate gives in addition to its tables: the host memory for building the model,
// which placements are fast, and shapes for which matrix products are slow.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "estimate/fit.h"

namespace gannet {

// One row for a model that every rank builds whole, and one for a model built under zero::Init.
std::string building_text(const zero::Plan& plan, const zero::FreeSpace& room);
// The order of speed, and the fastest placement that fits; the latter only if device memory is
// known.
std::string speed_text(const zero::Plan& plan, const zero::FreeSpace& room);
// One sentence on sizes above 16 that are not multiples of 16, by name; "" if there are none.
std::string shapes_text(const std::vector<std::pair<std::string, int64_t>>& sizes);

}  // namespace gannet
