// What every rank has values of its own of, in checkpoints: optimizer states OF_RANK (what a rank's compression has left unsent)
// and, after a local step (GANNET_REDUCED_LATER), states LOCAL and the parameters:
//
//   rank_state/<rank>/<state>/<parameter>       <rank> as in state/state_entry.h
//   rank_parameter/<rank>/<parameter>           masters, beside parameter/<parameter>, which are the weights to use
//
// Resumed on as many ranks along the data axis each takes up its own. On another number each gets the mean of all: what an
// average over the ranks has still to carry is then the same. So it is with parameters and states LOCAL where the ranks are to
// have equal ones after the step at hand, since the config's params have changed.
#pragma once

#include <string>
#include <vector>

#include "engine/impl.h"
#include "state/state_entry.h"

namespace gannet {

/// Whether the ranks' parameters of a group are different now, after a local step.
bool ranks_differ(const EngineBase::Impl& impl, size_t group);

/// Whether they were when the checkpoint was saved.
bool ranks_differed(const checkpoint::Opened& found, const std::string& parameter);

/// Of a parameter that is another one on every rank the weights to use, in its master's dtype; undefined where all ranks have the
/// same, or the weights to evaluate with are in use.
at::Tensor weights_to_use(const EngineBase::Impl& impl, const Range& range, size_t parameter);

/// What all ranks have together, for a checkpoint: state_entries() with the weights to use in place of masters that differ.
std::vector<StateEntry> common_entries(const EngineBase::Impl& impl);

/// This rank's own, as it gives them to a checkpoint. `rank`: its rank_name.
void add_rank_states(const EngineBase::Impl& impl, const std::string& rank, std::vector<checkpoint::Slice>& slices);

/// Reads them from a checkpoint of `found.mesh()`, behind everything else of it; initial values of states where it has none.
/// `takes_parameters`: not where the program has set them itself. Returns a sentence for the receipt on what is not as it was
/// saved, "" where everything is.
std::string read_rank_states(const EngineBase::Impl& impl, const checkpoint::Opened& found, const checkpoint::Ranks& ranks,
                             bool takes_parameters);

}  // namespace gannet
