// Opens what a rank trains with, from the config: plugins, accelerator, ranks, tiers. Used by
// engines, and before them by zero::Init.
#pragma once

#include <gannet/initialize.h>
#include <gannet/mesh.h>

#include "config/parse.h"
#include "params/rank_context.h"

namespace gannet {

/// Opens the plugins, the device, the ranks and their mesh. From `options` it uses the choice of
/// ranks (process_group; null: the world) and their layout. The settings may still contain "auto"s
/// afterwards: zero::Init needs no batch, optimizer or schedule.
void open_ranks(RankContext& context, const config::Document& document, const EngineOptions& options);
/// The same, and then resolves the config for that number of ranks.
void open(RankContext& context, const config::Document& document, const EngineOptions& options);
/// Returns the mesh that the config and the program request, the same on every rank. `context` must
/// have its process_group (wanted_mesh.cpp).
MeshShape wanted_mesh(const RankContext& context, const config::Document& document, const EngineOptions& options);
/// Collectives on the device's tensors among these ranks. Called by every member.
std::unique_ptr<DeviceComm> comm_of(const RankContext& context, ProcessGroup& ranks);
/// Opens the tiers that hold masters, states and parameters outside the device's memory.
void open_tiers(RankContext& context, const config::Document& document);

}  // namespace gannet
