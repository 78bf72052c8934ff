// The native stream of a queue of the fake or the checked device (gannet_accelerator_api::
// queue_stream), for stand-ins of vendor libraries, which submit their work to it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gannet::accelerators {

class NativeStream {
 public:
  struct MemoryUse {
    const void* begin;  // as the library was given it
    uint64_t bytes;
    bool writes;
  };
  virtual ~NativeStream() = default;
  // Runs `work` asynchronously, in the queue's order. `uses`: the device memory that it reads and
  // writes.
  virtual void submit(const char* operation, const std::vector<MemoryUse>& uses, std::function<void()> work) = 0;
  // The host's address of the bytes at an address of the device.
  virtual void* memory(const void* address) = 0;
};

}  // namespace gannet::accelerators
