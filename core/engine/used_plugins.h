// The plugins that an engine works with: for the tables of the engine, the report and checkpoints. What was opened to see whether
// it would do (accelerators without a device) is not among them.
#pragma once

#include <vector>

#include "engine/impl.h"
#include "plugin/plugin.h"

namespace gannet {

// Accelerator, Comm (of the device, and of the host where that is another), optimizers, scheduler, tiers; each once.
std::vector<const plugin::Plugin*> used_plugins(const EngineBase::Impl& impl);

}  // namespace gannet
