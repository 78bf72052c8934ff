// The checks of what ABI 2.3 adds: several pieces in one call, and the step's numbers where the pieces are.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void lists(Subject& subject);
void device_numbers(Subject& subject);

}  // namespace gannet::kit
