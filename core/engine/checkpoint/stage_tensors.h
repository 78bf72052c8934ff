// The tensors of all stages of a pipeline on one rank.
#pragma once

#include <gannet/safetensors.h>

#include <cstdint>

#include "interfaces/host_group.h"
#include "mesh/groups.h"

namespace gannet {

/// The rank that holds this stage's tensors for gather_stages: the one at coordinate 0 on every axis
/// but pipe. Without stages, the first rank.
uint32_t first_rank_of_stage(const MeshGroups& mesh);

/// Appends the tensors of the other stages to those of the first one. The ranks of first_rank_of_stage
/// call it, with their stage's tensors whole; afterwards the first one has all tensors, each name
/// once (a tied tensor is on several stages), and the others are unchanged.
void gather_stages(const MeshGroups& mesh, NamedTensors& tensors);

}  // namespace gannet
