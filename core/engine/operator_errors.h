// LibTorch's complaints about tensors of two dtypes, where the config chose one of them, and of two devices.
//
//   } catch (...) {
//     rethrow_of_operators(impl, "forward");
//   }
#pragma once

#include "engine/impl.h"

namespace gannet {

// Within a handler only. Where the config gave the parameters 16 bits and an operator refuses a mixture with them:
// Error(kMismatch) that says which section of the config it was; where they are on a device and something is not:
// Error(kMismatch) too. Anything else leaves as rethrow_as_ours() has it.
[[noreturn]] void rethrow_of_operators(const EngineBase::Impl& impl, const char* call);

}  // namespace gannet
