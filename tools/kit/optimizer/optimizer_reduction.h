// Checks of optimizers that average gradients themselves (OWNS_GRAD_REDUCTION), on N ranks in this
// process at stage 0, where every rank has all pieces and, in the steps that the plugin chooses,
// unreduced gradients.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

// Checks that the result of reduces_gradients depends only on the params and the step.
void reduction_plan(Subject& subject);
// Checks that all ranks have the same parameters after a step in which the plugin averages, that
// these depend on every rank's gradients, and that the evaluation weights agree after local steps.
void optimizer_reduction(Subject& subject);
// Checks that a run resumed from saved states, per-rank states included, continues bit for bit.
void optimizer_reduction_resumes(Subject& subject);

}  // namespace gannet::kit
