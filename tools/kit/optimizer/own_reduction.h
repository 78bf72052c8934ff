// Checks of optimizers that average gradients themselves (OWNS_GRAD_REDUCTION), on N ranks in this
// process at stage 0, where every rank has all pieces and, in the steps that the plugin names,
// unreduced gradients.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

// The answer of reduces_gradients is a function of the params and the step.
void reduction_plan(Subject& subject);
// After such steps all ranks have the same parameters, which depend on every rank's gradients;
// after local steps they have the same weights to use.
void own_reduction(Subject& subject);
// A run resumed from saved states, per-rank states included, continues bit for bit.
void own_reduction_resumes(Subject& subject);

}  // namespace gannet::kit
