// Optimizer states of which every rank has values of its own (GANNET_STATE_OF_RANK: what a rank's compression has left unsent),
// in checkpoints:
//
//   rank_state/<rank>/<state>/<parameter>       <rank> as in state/state_entry.h
//
// Resumed on as many ranks along the data axis each takes up its own. On another number each gets the mean of all: what an
// average over the ranks has still to carry is then the same.
#pragma once

#include <string>
#include <vector>

#include "engine/impl.h"

namespace gannet {

/// This rank's, as it gives them to a checkpoint. `rank`: its rank_name.
void add_rank_states(const EngineBase::Impl& impl, const std::string& rank, std::vector<checkpoint::Slice>& slices);

/// Reads them from a checkpoint of `found.mesh()`; initial values where it has none. Returns a sentence for the receipt on what
/// is not as it was saved, "" where everything is.
std::string read_rank_states(const EngineBase::Impl& impl, const checkpoint::Opened& found, const checkpoint::Ranks& ranks);

}  // namespace gannet
