// Opens what a rank trains with, from the config: plugins, accelerator, ranks, tiers. An engine does, and zero::Init before it.
#pragma once

#include <gannet/initialize.h>
#include <gannet/mesh.h>

#include "config/parse.h"
#include "params/rank_context.h"

namespace gannet {

/// The plugins, the device, the ranks and their mesh. Of `options` those that say which ranks (process_group; null: the world)
/// and how they are laid out. The settings are then those of a config that may still have "auto"s: for zero::Init, which needs no
/// batch, optimizer or schedule.
void open_ranks(RankContext& context, const config::Document& document, const EngineOptions& options);
/// The same, and then the config as it is for that many ranks.
void open(RankContext& context, const config::Document& document, const EngineOptions& options);
/// The mesh that the config and the program ask for, the same on every rank; `context` has its process_group (wanted_mesh.cpp).
MeshShape wanted_mesh(const RankContext& context, const config::Document& document, const EngineOptions& options);
/// Collectives on the device's tensors among these ranks. Called by every member.
std::unique_ptr<DeviceComm> comm_of(const RankContext& context, ProcessGroup& ranks);
/// Where masters, states and parameters lie beside the device's memory.
void open_tiers(RankContext& context, const config::Document& document);

}  // namespace gannet
