// The types that an optimizer supports.
#pragma once

#include <vector>

#include "kit/check.h"
#include "kit/optimizer/problem.h"

namespace gannet::kit {

// All types that supports() accepts; fp32 without a copy comes first. `is_strict`: throws
// CheckFailure if the plugin contradicts itself or refuses types without an error message.
std::vector<ProblemTypes> supported_types(const Subject& subject, bool is_strict = false);
// The types for checks of other properties. Throws CheckFailure if there are none, SkippedCheck if
// the plugin does not work on host memory.
ProblemTypes usual_types(const Subject& subject);

}  // namespace gannet::kit
