// Describes a parameter group to its optimizer, and manages states that are not per element: those
// per tensor, per group, and per row or column of a tensor, including squares.
#pragma once

#include <cstddef>
#include <vector>

#include "params/range.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

/// Passes the tensors of a group to its optimizer. Called again when parameters have joined.
void describe_group(std::vector<Group>& groups, size_t number, const RankContext& context, const ParameterStore& store);

/// Extends Group::group_states to all described tensors; existing ones keep their values.
void grow_group_states(Group& group);

/// Extends Group::squares to the tensors that this rank holds in full; existing ones keep their
/// values. Call after the store has placed them.
void grow_squares(Group& group, size_t number, const RankContext& context, const ParameterStore& store);

/// Fills in gannet_update_args::squares for a piece: [segments][states]. Leaves `into` empty for an
/// optimizer without squares.
void squares_of(const Group& group, const Segment* segments, size_t count, std::vector<void*>& into);

}  // namespace gannet
