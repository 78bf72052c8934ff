// Hints that an estimate gives in addition to its tables: the host memory for building the model,
// which placements are fast, and shapes with slow matrix products.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "estimate/fit.h"

namespace gannet {

// Returns a table of host memory, with one row for a model that every rank builds in full and one
// for a model built under zero::Init.
std::string building_text(const zero::Plan& plan, const zero::FreeSpace& room);
// Returns the placements' order of speed and, if the device memory is known, the fastest placement
// that fits.
std::string speed_text(const zero::Plan& plan, const zero::FreeSpace& room);
// Returns one sentence that names the sizes above 16 that are not multiples of 16; "" if there are
// none.
std::string shapes_text(const std::vector<std::pair<std::string, int64_t>>& sizes);

}  // namespace gannet
