// Checks of the ABI 2.2 features: parameters that are perturbed for a second pass, and second
// gradients.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void perturbation(Subject& subject);
void second_gradient(Subject& subject);

}  // namespace gannet::kit
