// eval() and train() for an engine that evaluates with its optimizer's evaluation weights or a
// moving average instead of the weights that it trains.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Names the part of the engine that provides evaluation weights different from the trained ones,
/// such as "optimizer 'ScheduleFree'".
std::string evaluating_part(const EngineBase::Impl& impl);
/// Called when an engine ends: logs a note if its module keeps the evaluation weights.
void log_evaluation_weights(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
