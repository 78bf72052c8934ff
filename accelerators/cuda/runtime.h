// Shared helpers for the runtime's errors and for the current device.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/elementwise/gpu_runtime.h>

#include <gannet/sdk.hpp>
#include <string>

namespace gannet::accelerators {

inline void check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  // A failing device is not a bug in this plugin, as GANNET_INTERNAL would imply.
  throw sdk::Failure(status == cudaErrorMemoryAllocation ? GANNET_OUT_OF_MEMORY : GANNET_IO_ERROR,
                     doing + " failed: " + cudaGetErrorString(status));
}

inline c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }
inline c10::Device device_of(uint32_t device) {
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
}

// Sets the calling thread's current device for its lifetime. Uses LibTorch's guard, which does not
// create a context on the previous device.
class DeviceScope {
 public:
  explicit DeviceScope(uint32_t device) : before_(guard().exchangeDevice(device_of(device))) {}
  ~DeviceScope() { guard().uncheckedSetDevice(before_); }
  DeviceScope(const DeviceScope&) = delete;

 private:
  c10::Device before_;
};

}  // namespace gannet::accelerators
