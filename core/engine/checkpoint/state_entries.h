// The state of an engine as named tensors, which a save writes to a checkpoint and a load reads
// back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/impl.h"
#include "state/state_entry.h"

namespace gannet {

// Returns the trained parameters (their masters), their moving averages, the frozen parameters, this rank's buffers and the
// optimizer states. Tied parameters appear once. `differs`: whether the ranks have different values of a parameter, so that
// its LOCAL states are not included (rank_states.h). Throws Error(kOrder) if splits or ties were declared after initialize.
using DifferenceTest = std::function<bool(const Range& range, const TrainedParameter& parameter)>;
std::vector<StateEntry> state_entries(const EngineBase::Impl& impl, const DifferenceTest& differs);
std::vector<StateEntry> state_entries(const EngineBase::Impl& impl);  // `differs`: whether the ranks differ now

// Returns whether ranks have different parameters along axes other than data, because there are
// pipeline stages or boxes of split parameters.
bool keeps_model_parts(const EngineBase::Impl& impl);
// Returns the checkpoint name of the data that the program's own optimizer serialises for this
// rank's parameters: "optimizer/user" or, if ranks keep parts of the model,
// "optimizer/user/pipe0.tensor1".
std::string user_optimizer_name(const EngineBase::Impl& impl);

// Returns each generator that training draws from: "cpu", and the generator of the engine's device.
std::vector<std::pair<std::string, at::Generator>> generators(const EngineBase::Impl& impl);
// Returns the states of these generators, and those of checkpointing::rng_tracker()'s streams
// ("stream/<name>/<device>").
std::vector<std::pair<std::string, at::Tensor>> random_states(const EngineBase::Impl& impl);

}  // namespace gannet
