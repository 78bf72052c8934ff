// Checks of the ABI 2.3 features: several pieces in one call, and the step's numbers in the memory
// that holds the pieces.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void lists(Subject& subject);
void device_numbers(Subject& subject);

}  // namespace gannet::kit
