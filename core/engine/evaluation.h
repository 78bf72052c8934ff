// eval() and train() of an engine that evaluates with other weights than it trains: its optimizer's, or a moving average.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Error(kOrder): eval() has put other weights in the place of those that are trained.
void require_training_weights(const EngineBase::Impl& impl, const char* call);
/// In the log, when the engine ends between the two.
void tell_of_evaluation_weights(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
