// Gathers the tensors of all pipeline stages on one rank.
#pragma once

#include <gannet/safetensors.h>

#include <cstdint>

#include "interfaces/host_group.h"
#include "mesh/groups.h"

namespace gannet {

/// The rank that holds this stage's tensors for gather_stages: the one at coordinate 0 on every axis
/// but pipe. Without stages, the first rank.
uint32_t first_rank_of_stage(const MeshGroups& mesh);

/// Appends the other stages' tensors to those of the first stage. Called on each stage's
/// first_rank_of_stage rank with that stage's full tensors; afterwards the first stage has all
/// tensors, each name once (a tied tensor is on several stages); the others are unchanged.
void gather_stages(const MeshGroups& mesh, NamedTensors& tensors);

}  // namespace gannet
