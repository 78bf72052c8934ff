// eval() and train() of an engine that evaluates with weights other than those it trains: its
// optimizer's, or a moving average.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Names the part of the engine that evaluates with other weights than it trains: "optimizer
/// 'ScheduleFree'".
std::string evaluating_part(const EngineBase::Impl& impl);
/// Logs that the engine ended between eval() and train().
void log_evaluation_weights(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
