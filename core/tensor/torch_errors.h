// Converts LibTorch's exceptions at the boundary of our calls: out-of-memory and device failures
// become gannet::Error.
//
//   void EngineBase::backward(...) try {
//     ...
//   } catch (...) {
//     rethrow_as_ours("backward");
//   }
#pragma once

namespace gannet {

// Call it only within a handler. Throws Error(kOutOfMemory) for host or device memory and
// Error(kDevice) for an error that the device reported. Anything else, including the program's
// exceptions and ours, is rethrown unchanged.
[[noreturn]] void rethrow_as_ours(const char* call);

}  // namespace gannet
