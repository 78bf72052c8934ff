// A forward of the module, of the program's own code between begin and end.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Error(kOrder) where the gate refuses a forward. The calling thread is in the call until end_forward().
void begin_forward(EngineBase::Impl& impl);
/// The module's forward has returned: are all ranks here?
void finish_forward(EngineBase::Impl& impl);
/// After finish_forward(), or after an exception.
void end_forward(EngineBase::Impl& impl);
/// Within a handler: LibTorch's errors of memory, device and dtypes as ours.
[[noreturn]] void rethrow_from_forward(EngineBase::Impl& impl);

}  // namespace gannet
