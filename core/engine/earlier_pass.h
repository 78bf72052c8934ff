// The passes of a step before the one that step() ends: perturb(), keep_second_gradient(), and what the program may not do
// between them and step() (gate.h).
#pragma once

#include <string>

#include "engine/impl.h"

namespace gannet {

/// Before a step() at a boundary: Error(kOrder) where the optimizer takes a second gradient and the program has kept none.
void require_second_gradient(const EngineBase::Impl& impl);
/// Logs once that a step of an optimizer with a perturbation was taken without perturb(): legal, and perhaps not meant.
void tell_of_unperturbed_step(EngineBase::Impl& impl);
/// The parameters from before perturb(), if it was called. `publishes`: what the model reads, too; else an update follows, which
/// publishes all of it. Every rank calls it.
void restore_perturbed(EngineBase::Impl& impl, bool publishes);
/// Error(kOrder): the program has written into parameters since perturb(); step() would drop it without a word.
void refuse_writes_while_perturbed(const EngineBase::Impl& impl);
/// No step has begun, and parameters are those of a checkpoint.
void forget_earlier_passes(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
