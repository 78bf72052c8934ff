// Describes parameters that are NaN or infinite, for saves and for a loss that is not finite.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "params/store.h"

namespace gannet {

// Returns "2 parameters are not finite: 'h.0.weight' (12 elements), ..."; "" if there are none.
// `counts`: the number of non-finite elements by tensor name in a checkpoint; tensors that are not
// parameters are skipped.
std::string not_finite_text(const std::map<std::string, uint64_t>& counts);

// Does the same for this rank's parts of the parameters in memory. It reads all of them, so call it
// only to report an error.
std::string not_finite_text(const ParameterStore& store);

}  // namespace gannet
