// The relay's tables (relay.h), for all kinds but accelerators; their functions call `plugin`'s.
#pragma once

#include "plugin/plugin.h"

namespace gannet::kit {

const void* optimizer_table(const plugin::Plugin& plugin);  // relay_optimizer.cpp
const void* scheduler_table(const plugin::Plugin& plugin);  // relay_scheduler.cpp
const void* offload_table(const plugin::Plugin& plugin);    // relay_comm.cpp
const void* comm_table(const plugin::Plugin& plugin);       // relay_comm.cpp

}  // namespace gannet::kit
