// Opens what a rank trains with, from the config: plugins, accelerator, ranks, tiers. An engine does, and zero::Init before it.
#pragma once

#include <memory>

#include "config/parse.h"
#include "params/rank_context.h"

namespace gannet {

/// The plugins, the device and the ranks; then the config as it is for that many ranks. `given`: null: the world.
void open(RankContext& context, const config::Document& document, std::shared_ptr<ProcessGroup> given);
/// Where masters, states and parameters lie beside the device's memory.
void open_tiers(RankContext& context, const config::Document& document);

}  // namespace gannet
