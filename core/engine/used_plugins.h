// The plugins that an engine uses: for the tables of the engine, the report and checkpoints.
// Plugins that were opened only to try them (accelerators without a device) are not included.
#pragma once

#include <vector>

#include "engine/impl.h"
#include "plugin/plugin.h"

namespace gannet {

// Accelerator, Comm (the device's, and the host's if it is another), optimizers, scheduler, tiers;
// each once.
std::vector<const plugin::Plugin*> used_plugins(const EngineBase::Impl& impl);

}  // namespace gannet
