// The types that an optimizer says it takes.
#pragma once

#include <vector>

#include "kit/check.h"
#include "kit/optimizer/problem.h"

namespace gannet::kit {

// All types that supports() accepts, fp32 without a copy first. `is_strict`: throws Failed if it
// contradicts itself or refuses without a sentence.
std::vector<Types> supported_types(const Subject& subject, bool is_strict = false);
// The types for checks of other properties. Throws Failed if there are none, Skipped if the plugin
// does not work on host memory.
Types usual_types(const Subject& subject);

}  // namespace gannet::kit
