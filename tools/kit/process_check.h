// The check that a plugin of any kind leaves the process as it was, around every call, and what the
// common checks need of each kind.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void leave_process_alone(Subject& subject);

// The parts for the kinds that need a simulated engine, ranks or a tier. Each calls every function of
// the table that it can.
void use_optimizer(Subject& subject);
void use_scheduler(Subject& subject);
void use_comm(Subject& subject);
void use_offload(Subject& subject);

// Likewise: call functions that must fail, with a sentence.
void fail_optimizer(Subject& subject);
void fail_comm(Subject& subject);
void fail_offload(Subject& subject);

}  // namespace gannet::kit
