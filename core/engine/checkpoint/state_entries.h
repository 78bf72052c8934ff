// What an engine is, as named tensors: what a checkpoint keeps of it, and where a load puts it back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/impl.h"
#include "state/state_entry.h"

namespace gannet {

// Trained parameters (their masters), frozen ones, buffers of this rank, optimizer states. Tied ones once. `differs`: whether the
// ranks have values of their own of a parameter, so that its states LOCAL are none of these (rank_states.h).
using Differs = std::function<bool(const Range& range, const TrainedParameter& parameter)>;
std::vector<StateEntry> state_entries(const EngineBase::Impl& impl, const Differs& differs);
std::vector<StateEntry> state_entries(const EngineBase::Impl& impl);  // as the ranks are now

// Whether ranks other than those of the data axis have parameters of their own: stages of a pipeline, boxes of split ones.
bool keeps_model_parts(const EngineBase::Impl& impl);
// Where a checkpoint has what an optimizer of the program's own class serializes of this rank's parameters: "optimizer/user", and
// where ranks keep parts of the model "optimizer/user/pipe0.tensor1".
std::string user_optimizer_name(const EngineBase::Impl& impl);

// Each generator that training draws from: "cpu", and the engine's device.
std::vector<std::pair<std::string, at::Generator>> generators(const EngineBase::Impl& impl);
// Their states, and those of checkpointing::rng_tracker()'s streams: "stream/<name>/<device>".
std::vector<std::pair<std::string, at::Tensor>> random_states(const EngineBase::Impl& impl);

}  // namespace gannet
