// The CUDA runtime's errors and current device, as the plugin's files share them.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>

#include <gannet/sdk.hpp>
#include <string>

namespace gannet::accelerators {

inline void check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  // A device that fails is no fault of this plugin: GANNET_INTERNAL would say so.
  throw sdk::Failure(status == cudaErrorMemoryAllocation ? GANNET_OUT_OF_MEMORY : GANNET_IO_ERROR,
                     doing + " failed: " + cudaGetErrorString(status));
}

inline c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }
inline c10::Device device_of(uint32_t device) {
  return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
}

// The calling thread's current device, for as long as this lives. LibTorch's way, which makes no context on the one before.
class OnDevice {
 public:
  explicit OnDevice(uint32_t device) : before_(guard().exchangeDevice(device_of(device))) {}
  ~OnDevice() { guard().uncheckedSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;

 private:
  c10::Device before_;
};

}  // namespace gannet::accelerators
