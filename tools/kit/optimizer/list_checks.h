// The checks of the features of ABI 2.3: several pieces in one call, and the step's numbers in the
// memory of the pieces.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void lists(Subject& subject);
void device_numbers(Subject& subject);

}  // namespace gannet::kit
