// Per-rank state in checkpoints: the optimizer's OF_RANK states (the part of the gradients that a
// rank's compression has not sent yet) and, after a local step (GANNET_REDUCED_LATER), its LOCAL
// states and the parameters:
//
//   rank_state/<rank>/<state>/<parameter>       <rank> as in state/state_entry.h
//   rank_parameter/<rank>/<parameter>           masters; parameter/<parameter>: the weights to use
//
// A run that resumes with the same number of ranks along the data axis gives each rank its own
// state. With a different number, each rank gets the mean over all of them, which preserves the
// residual that is still to be averaged over the ranks. Parameters and LOCAL states are averaged as
// well if the config's params have changed so that the ranks should be equal after the current
// step.
#pragma once

#include <string>
#include <vector>

#include "engine/impl.h"
#include "state/state_entry.h"

namespace gannet {

/// Returns whether the ranks currently have different parameters in a group, after a local step.
bool ranks_differ(const EngineBase::Impl& impl, size_t group);

/// Returns whether the ranks had different values of a parameter when the checkpoint was saved.
bool ranks_differed(const checkpoint::Opened& found, const std::string& parameter);

/// Returns the weights to use for a parameter that differs between ranks, in its master's dtype.
/// Undefined if all ranks have the same values, or if the evaluation weights are in use.
at::Tensor weights_to_use(const EngineBase::Impl& impl, const Range& range, size_t parameter);

/// Returns the state that all ranks have in common, for a checkpoint: state_entries() with the
/// weights to use in place of masters that differ.
std::vector<StateEntry> common_entries(const EngineBase::Impl& impl);

/// Adds this rank's own state to the slices of a checkpoint. `rank`: this rank's rank_name.
void add_rank_states(const EngineBase::Impl& impl, const std::string& rank, std::vector<checkpoint::Slice>& slices);

/// Reads this rank's own state from a checkpoint. Call it after the rest of the load.
/// States that the checkpoint lacks get their initial values. `takes_parameters`: false if the
/// program has set the parameters itself. Returns a note for the receipt about the states that
/// differ from the saved ones; "" if there are none.
std::string read_rank_states(const EngineBase::Impl& impl, const checkpoint::Opened& found, const checkpoint::Ranks& ranks,
                             bool takes_parameters);

}  // namespace gannet
