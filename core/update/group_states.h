// What an optimizer is told of its parameter group, and its states that are no element's: one per tensor, or one per group.
#pragma once

#include <cstddef>
#include <vector>

#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// Tells the optimizer which tensors it is for; again when more have joined.
void describe_group(std::vector<Group>& groups, size_t number, const RankContext& context, const ParameterStore& store);

/// Group::own_states for all tensors that the optimizer was told of; those that are there keep their values.
void grow_own_states(Group& group);

}  // namespace gannet
