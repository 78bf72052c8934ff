// Checks of the ABI 2.4 features: the step's loss, the planned length of the run, and metrics.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void losses(Subject& subject);
void run_lengths(Subject& subject);
void shown_metrics(Subject& subject);

}  // namespace gannet::kit
