// LibTorch's own exceptions where they leave a call of ours: memory that ran out and a device that failed become gannet::Error.
//
//   void EngineBase::backward(...) try {
//     ...
//   } catch (...) {
//     rethrow_as_ours("backward");
//   }
#pragma once

namespace gannet {

// Within a handler only. Error(kOutOfMemory) for memory of host or device, Error(kDevice) for an error that the device reported;
// anything else, the program's own exceptions and ours among it, is thrown on as it is.
[[noreturn]] void rethrow_as_ours(const char* call);

}  // namespace gannet
