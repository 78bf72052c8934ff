// The layers of the model that this engine recomputes in backward (activation/recomputing.h). The
// config determines them or, between two steps, all ranks choose the same ones.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Returns the planner with the config's settings. If these do not turn recomputation on,
/// gradient_checkpointing_enable() may.
std::shared_ptr<activation::RecomputationPlanner> recomputing_of(const EngineBase::Impl& impl);
/// Called at a boundary by every rank. Chooses layers from the measurements, and warns once if nothing
/// was recomputed. Throws Error(kMismatch) if ranks have measured different layers.
void end_step_of_recomputation(EngineBase::Impl& impl);

}  // namespace gannet
