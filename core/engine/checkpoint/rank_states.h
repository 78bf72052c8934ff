// Per-rank state in checkpoints: optimizer states OF_RANK (what a rank's compression has not sent
// yet) and, after a local step (GANNET_REDUCED_LATER), LOCAL states and the parameters:
//
//   rank_state/<rank>/<state>/<parameter>       <rank> as in state/state_entry.h
//   rank_parameter/<rank>/<parameter>           masters, beside parameter/<parameter>, which are the weights to use
//
// A run that resumes with the same number of ranks along the data axis gives each rank its own
// state. With another number each rank gets the mean of all, which preserves what an average over
// the ranks has still to carry. Parameters and LOCAL states also become the mean if the config's
// params have changed so that the ranks should be equal after the current step.
#pragma once

#include <string>
#include <vector>

#include "engine/impl.h"
#include "state/state_entry.h"

namespace gannet {

/// Whether the ranks' parameters of a group are different now, after a local step.
bool ranks_differ(const EngineBase::Impl& impl, size_t group);

/// Whether they differed when the checkpoint was saved.
bool ranks_differed(const checkpoint::Opened& found, const std::string& parameter);

/// Returns the weights to use for a parameter that differs between ranks, in its master's dtype.
/// Undefined if all ranks have the same, or if the evaluation weights are in use.
at::Tensor weights_to_use(const EngineBase::Impl& impl, const Range& range, size_t parameter);

/// State common to all ranks, for a checkpoint: state_entries() with the weights to use in place of
/// masters that differ.
std::vector<StateEntry> common_entries(const EngineBase::Impl& impl);

/// Adds this rank's own state to the slices of a checkpoint. `rank`: its rank_name.
void add_rank_states(const EngineBase::Impl& impl, const std::string& rank, std::vector<checkpoint::Slice>& slices);

/// Reads them from a checkpoint of `found.mesh()`, after everything else in it. States that it
/// lacks get their initial values. `takes_parameters`: false if the program has set the parameters
/// itself. Returns a sentence for the receipt about what is not as it was saved; "" if everything
/// is.
std::string read_rank_states(const EngineBase::Impl& impl, const checkpoint::Opened& found, const checkpoint::Ranks& ranks,
                             bool takes_parameters);

}  // namespace gannet
