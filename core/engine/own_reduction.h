// Optimizers that average gradients themselves (OWNS_GRAD_REDUCTION: the 1-bit family): whom they can serve, which steps they do
// it in, and what a step's gradient is then.
//
// In such a step the reducer leaves each rank's gradients as its backwards made them (Range::has_own_gradients), and update() of
// every bucket averages what it sends, with the host's collectives, or, in a local step, nothing (GANNET_REDUCED_LATER): the
// ranks have different parameters then (rank_states.h). The norm is the root of the mean over ranks of the squares. It is that of
// the average only where the ranks' gradients are equal, else it is larger: each rank's noise is part of it.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Error(kUnsupported): the engine's stage, tiers or mesh are none that such an optimizer can work on.
void check_own_reduction(const RankContext& context, const ParameterStore& store, const Optimizer& optimizer);

/// Error(kUnsupported) where a parameter is to join the group of such an optimizer.
void refuse_joining(const EngineBase::Impl& impl, size_t group, const std::string& parameter);

/// Error(kUnsupported) where one of its parameters was frozen after initialize, and misses the step.
void refuse_frozen(const EngineBase::Impl& impl);

/// Error(kOrder) where the ranks' parameters of a group differ after a local step, and the program is about to give one a value:
/// what the optimizer averages next is how far each rank has gone from the last common values.
void refuse_write(const EngineBase::Impl& impl, const char* call, size_t group, const std::string& parameter);
/// The same, and the parameters are torn, where it was written in the module.
void refuse_writes_after_local_steps(EngineBase::Impl& impl);

/// Before a backward that ends a step: Range::has_own_gradients, for the step at hand.
void plan_reduction(EngineBase::Impl& impl);

/// The ranks whose gradients differ in the step at hand; null: every rank has the same.
HostGroup* ranks_with_own_gradients(const EngineBase::Impl& impl);

}  // namespace gannet
