// The beginning and the end of a forward of the module; the program's own code runs between them.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Throws Error(kOrder) if the gate refuses a forward. The calling thread is in the call until
/// end_forward().
void begin_forward(EngineBase::Impl& impl);
/// Called when the module's forward has returned. Checks that all ranks have arrived.
void finish_forward(EngineBase::Impl& impl);
/// Called after finish_forward(), or after an exception.
void end_forward(EngineBase::Impl& impl);
/// Called within a catch block. Rethrows LibTorch's errors about memory, devices and dtypes as
/// Gannet's.
[[noreturn]] void rethrow_from_forward(EngineBase::Impl& impl);

}  // namespace gannet
