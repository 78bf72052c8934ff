// The plugins that an engine uses, for the engine's tables, the report and checkpoints. Plugins
// that were opened only to try them (accelerators without a device) are not included.
#pragma once

#include <vector>

#include "engine/impl.h"
#include "plugin/plugin.h"

namespace gannet {

// Returns the plugins of the accelerator, of the Comm (the device's, and the host's if it is a
// different one), of the optimizers, the scheduler and the tiers, each once.
std::vector<const plugin::Plugin*> used_plugins(const EngineBase::Impl& impl);

}  // namespace gannet
