// Which types an optimizer takes, as it says.
#pragma once

#include <vector>

#include "kit/check.h"
#include "kit/optimizer/problem.h"

namespace gannet::kit {

// All that supports() accepts, fp32 without a copy first. `is_strict`: throws Failed where it contradicts itself
// or refuses without a sentence.
std::vector<Types> supported_types(const Subject& subject, bool is_strict = false);
// The one that checks of something else use. Throws Failed where there is none, Skipped where the plugin's memory is no host
// memory.
Types usual_types(const Subject& subject);

}  // namespace gannet::kit
