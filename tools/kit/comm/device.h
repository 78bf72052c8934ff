// The device whose memory a Comm under check moves: an accelerator in the Comm's own file, or that of
// --accelerator.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

// Chooses the accelerator for the Comm's device, if one of these is it. `others`: of --accelerator.
void choose_device(const Subject& comm, const std::vector<const plugin::Plugin*>& others);

// Opens the chosen accelerator in this process at the first call and adds it to the rendezvous, as an
// engine does. Does nothing if none was chosen.
void add_device(gannet_rendezvous& rendezvous);

// Whether the chosen accelerator's memory is the host's, the only memory that the kit has.
bool has_device_of_host_memory();

}  // namespace gannet::kit
