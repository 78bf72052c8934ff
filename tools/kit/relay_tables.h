// The tables of the relay (relay.h), one for each kind: functions that call those of `plugin`.
#pragma once

#include "plugin/plugin.h"

namespace gannet::kit {

const void* optimizer_table(const plugin::Plugin& plugin);  // relay_optimizer.cpp
const void* scheduler_table(const plugin::Plugin& plugin);  // relay_scheduler.cpp
const void* offload_table(const plugin::Plugin& plugin);    // relay_comm.cpp
const void* comm_table(const plugin::Plugin& plugin);       // relay_comm.cpp

}  // namespace gannet::kit
