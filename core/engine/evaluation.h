// eval() and train() of an engine that evaluates with other weights than it trains: its optimizer's, or a moving average.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Which part of the engine evaluates with other weights than it trains, in words: "optimizer 'ScheduleFree'".
std::string evaluating_part(const EngineBase::Impl& impl);
/// In the log, when the engine ends between the two.
void tell_of_evaluation_weights(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
