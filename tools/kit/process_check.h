// The check that a plugin of any kind leaves the process as it was, around every call, and the
// kind-specific parts of the common checks.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void leave_process_alone(Subject& subject);

// The parts for the kinds that need a simulated engine, ranks or a tier. Each calls every table
// function that it can.
void use_optimizer(Subject& subject);
void use_scheduler(Subject& subject);
void use_comm(Subject& subject);
void use_offload(Subject& subject);

// Likewise: these call functions that must fail with an error message.
void fail_optimizer(Subject& subject);
void fail_comm(Subject& subject);
void fail_offload(Subject& subject);

}  // namespace gannet::kit
