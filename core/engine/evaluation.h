// eval() and train() of an engine that does not evaluate with the weights that it trains, but with
// its optimizer's evaluation weights or a moving average.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Names the part of the engine that evaluates with weights that differ from those that it trains,
/// such as "optimizer 'ScheduleFree'".
std::string evaluating_part(const EngineBase::Impl& impl);
/// Logs that the engine ended between eval() and train().
void log_evaluation_weights(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
