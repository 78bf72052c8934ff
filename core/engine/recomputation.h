// Which layers of the model this engine has recomputed in backward (activation/recomputing.h): from the config, and between two
// steps the same choice on all ranks.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// As the config says; what gradient_checkpointing_enable() turns on where it says nothing.
std::shared_ptr<activation::Recomputing> recomputing_of(const EngineBase::Impl& impl);
/// At a boundary, on every rank: chooses from what was measured, and warns once where nothing has been recomputed.
void end_step_of_recomputation(EngineBase::Impl& impl);

}  // namespace gannet
