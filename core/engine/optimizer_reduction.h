// Handles optimizers that average gradients themselves (OWNS_GRAD_REDUCTION: the 1-bit family):
// decides where they are allowed and in which steps they average.
//
// In a step in which they average, the reducer leaves each rank's gradients as backward produced
// them (Range::has_unreduced_gradients). The update() of every bucket averages the values that it
// sends, with the host's collectives. In a local step (GANNET_REDUCED_LATER), it sends nothing, and
// the ranks then have different parameters (rank_states.h). The gradient norm is the root of the
// mean over ranks of the squared norms. It equals the norm of the average only if the ranks'
// gradients are equal; otherwise it is larger, since it includes each rank's noise.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Throws Error(kUnsupported) if such an optimizer cannot work with the engine's stage, tiers or
/// mesh.
void check_optimizer_reduction(const RankContext& context, const ParameterStore& store, const Optimizer& optimizer);

/// Throws Error(kUnsupported) if a parameter would join the group of such an optimizer.
void refuse_joining(const EngineBase::Impl& impl, size_t group, const std::string& parameter);

/// Throws Error(kUnsupported) if a parameter of such an optimizer was frozen after initialize and
/// would miss the step.
void refuse_frozen(const EngineBase::Impl& impl);

/// Throws Error(kOrder) if the ranks' parameters of a group differ after a local step and the
/// program is about to set one of them: the optimizer will next average each rank's movement since
/// the last common values.
void refuse_write(const EngineBase::Impl& impl, const char* call, size_t group, const std::string& parameter);
/// The same for a parameter that was written in the module; the engine's parameters then count as
/// undefined.
void refuse_writes_after_local_steps(EngineBase::Impl& impl);

/// Called before a backward that ends a step. Sets Range::has_unreduced_gradients for this step. Throws
/// Error(kPluginFault) if the engine would have to average gradients after a local step.
void plan_reduction(EngineBase::Impl& impl);

/// Returns the ranks with different gradients in the current step; null if every rank has the same.
HostGroup* ranks_with_unreduced_gradients(const EngineBase::Impl& impl);

}  // namespace gannet
