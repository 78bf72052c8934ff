// Opens the plugins, the accelerator, the ranks and the tiers that the config names. Used by
// engines and, before there is one, by zero::Init.
#pragma once

#include <gannet/initialize.h>
#include <gannet/mesh.h>

#include "config/parse.h"
#include "params/rank_context.h"

namespace gannet {

/// Opens the plugins, the device, the ranks and their mesh. From `options`, uses only the ranks
/// (process_group; null: the world) and their layout. The settings may still contain "auto"s
/// afterwards: zero::Init needs no batch, optimizer or schedule.
void open_ranks(RankContext& context, const config::Document& document, const EngineOptions& options);
/// Does the same, and then resolves the config for that number of ranks.
void open(RankContext& context, const config::Document& document, const EngineOptions& options);
/// Returns the mesh that the config and the program request; it is the same on every rank.
/// `context` must have its process_group (wanted_mesh.cpp).
MeshShape wanted_mesh(const RankContext& context, const config::Document& document, const EngineOptions& options);
/// Returns a communicator for the device's tensors among these ranks. Every member calls it.
std::unique_ptr<DeviceComm> comm_of(const RankContext& context, ProcessGroup& ranks);
/// Opens the tiers that hold masters, states and parameters outside the device's memory.
void open_tiers(RankContext& context, const config::Document& document);

}  // namespace gannet
