// The description of a parameter group for its optimizer, and states that are not per element: one per tensor, one per group,
// and the squares of a tensor's rows or columns.
#pragma once

#include <cstddef>
#include <vector>

#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// Tells the optimizer which tensors it is for; again when more have joined.
void describe_group(std::vector<Group>& groups, size_t number, const RankContext& context, const ParameterStore& store);

/// Group::own_states for all tensors that the optimizer has been described; those that are there keep their values.
void grow_own_states(Group& group);

/// Group::squares of the tensors that this rank has whole; those that are there keep their values. After the store has placed
/// them.
void grow_squares(Group& group, size_t number, const RankContext& context, const ParameterStore& store);

/// gannet_update_args::squares of a piece: [segments][states]. Does nothing for an optimizer without squares.
void squares_of(const Group& group, const Segment* segments, size_t count, std::vector<void*>& into);

}  // namespace gannet
