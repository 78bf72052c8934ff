// The world of a communicator that the program made (DistributedOptions::mpi_communicator): a Comm
// plugin says this process's rank and its size, and carries rank 0's address to the others.
#pragma once

#include <chrono>

#include "control/environment.h"
#include "plugin/plugin.h"

namespace gannet::control {

// The plugin's extension for communicators; null if it has none.
const gannet_communicator_extension* communicator_extension(const plugin::Plugin& comm);

// All ranks of the communicator call it. `handle`: see gannet_communicator_extension. `generation`:
// the worlds that this process has made, of which rank 0's becomes a part of Environment::job. Throws
// Error(kUnsupported) if the plugin takes no communicator, Error(kTimeout) if a rank does not call it
// in time, and the plugin's errors.
Environment environment_of(const plugin::Plugin& comm, const void* handle, std::chrono::milliseconds timeout,
                           uint32_t generation);

}  // namespace gannet::control
