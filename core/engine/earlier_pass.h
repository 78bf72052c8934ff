// The passes of a step before its last one, which step() ends. perturb() and keep_second_gradient()
// end the earlier ones; gate.h lists the calls that are refused between them and step().
#pragma once

#include <string>

#include "engine/impl.h"

namespace gannet {

/// Called before a step() at a boundary. Throws Error(kOrder) if the optimizer needs a second
/// gradient and the program has kept none.
void require_second_gradient(const EngineBase::Impl& impl);
/// Logs once that an optimizer with a perturbation took a step without perturb(): legal, but
/// perhaps not intended.
void warn_if_not_perturbed(EngineBase::Impl& impl);
/// Restores the parameters from before perturb(), if it was called. `publishes`: also publishes
/// them to the model; false: the update that follows does so. If a parameter was frozen since
/// perturb(), they are always published. Every rank calls it.
void restore_perturbed(EngineBase::Impl& impl, bool publishes);
/// Throws Error(kOrder) if the program has written into parameters since perturb(): step() would
/// drop the writes silently.
void refuse_writes_while_perturbed(const EngineBase::Impl& impl);
/// Forgets the earlier passes, but leaves parameters as they are (restored, or loaded from a
/// checkpoint).
void forget_earlier_passes(EngineBase::Impl& impl) noexcept;

}  // namespace gannet
