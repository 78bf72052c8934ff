// LibTorch's complaints about two dtypes, where the config chose one of them.
//
//   } catch (...) {
//     rethrow_with_dtypes(impl, "forward");
//   }
#pragma once

#include "engine/impl.h"

namespace gannet {

// Within a handler only. Where the config gave the parameters 16 bits and an operator refuses a mixture with them:
// Error(kMismatch) that says which section of the config it was. Anything else leaves as rethrow_as_ours() has it.
[[noreturn]] void rethrow_with_dtypes(const EngineBase::Impl& impl, const char* call);

}  // namespace gannet
