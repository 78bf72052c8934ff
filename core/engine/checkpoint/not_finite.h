// Parameters that are NaN or infinite: what a save and a loss that is not finite say of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "params/store.h"

namespace gannet {

// "2 parameters are not finite: 'h.0.weight' (12 elements), ..."; "": none. `counts`: by the names that tensors have in a
// checkpoint; those that are no parameters are passed over.
std::string not_finite_text(const std::map<std::string, uint64_t>& counts);

// The same of what this rank has of the parameters, in memory. Reads all of them: for an error that is on its way.
std::string not_finite_text(const ParameterStore& store);

}  // namespace gannet
