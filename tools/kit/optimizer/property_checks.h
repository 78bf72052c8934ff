// Checks that an optimizer's results depend only on what the contract names: each compares a run
// with one in which something else has changed.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void gradient_scale(Subject& subject);
void hyperparameters(Subject& subject);
void labels(Subject& subject);
void neighbours(Subject& subject);
void threads(Subject& subject);
void refused_memory(Subject& subject);
void other_hosts(Subject& subject);
void arguments_untouched(Subject& subject);
void all_types(Subject& subject);
void piece_lengths(Subject& subject);
void far_steps(Subject& subject);
void partial_sums(Subject& subject);

}  // namespace gannet::kit
