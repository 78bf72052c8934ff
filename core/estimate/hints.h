// What an estimate says beside its tables: the host memory that building the model takes, which placements are fast, and shapes
// that matrix products are slow with.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "estimate/fit.h"

namespace gannet {

// Rows for a model that every rank builds whole, and for one under zero::Init.
std::string building_text(const zero::Plan& plan, const zero::Room& room);
// The order of speed, and the fastest placement that fits; nothing is said of it where device memory is not known.
std::string speed_text(const zero::Plan& plan, const zero::Room& room);
// One sentence on sizes above 16 that 16 does not divide, by name; "" where there are none.
std::string shapes_text(const std::vector<std::pair<std::string, int64_t>>& sizes);

}  // namespace gannet
