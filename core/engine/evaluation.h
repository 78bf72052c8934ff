// eval() and train() of an optimizer that evaluates with other weights than it trains.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Error(kOrder): eval() has put other weights in the place of those that are trained.
void require_training_weights(const EngineBase::Impl& impl, const char* call);

}  // namespace gannet
