// The layers of the model that this engine recomputes in backward (activation/recomputing.h). The
// config determines them or, between two steps, all ranks choose the same ones.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Returns the planner that the config determines or, if the config does not turn recomputation on,
/// the one that gradient_checkpointing_enable() turns on.
std::shared_ptr<activation::RecomputationPlanner> recomputing_of(const EngineBase::Impl& impl);
/// Called at a boundary by every rank. Chooses layers from the measurements, and warns once if
/// nothing was recomputed.
void end_step_of_recomputation(EngineBase::Impl& impl);

}  // namespace gannet
