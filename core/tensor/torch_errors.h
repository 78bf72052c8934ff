// Converts LibTorch's exceptions at the boundary of Gannet's calls: out-of-memory and device
// failures become a gannet::Error.
//
//   void EngineBase::backward(...) try {
//     ...
//   } catch (...) {
//     rethrow_as_ours("backward");
//   }
#pragma once

namespace gannet {

// Call it only inside a catch block. Throws Error(kOutOfMemory) if host or device memory ran out,
// and Error(kDevice) for an error that the device reported. A read of absent bytes
// (absent_storage.h) becomes an Error(kOrder). Anything else, including exceptions of the program
// and gannet::Error, is rethrown unchanged.
[[noreturn]] void rethrow_as_ours(const char* call);

}  // namespace gannet
