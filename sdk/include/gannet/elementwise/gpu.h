// The host side of element-wise optimizers on a GPU: selects the device and turns the runtime's
// errors into messages.
#pragma once

#include <gannet/elementwise/gpu_runtime.h>

#include <gannet/sdk.hpp>
#include <string>
namespace gannet::rules {

// Makes the device that holds `memory` this thread's current device until the end of the scope.
// This is necessary because a null stream belongs to the current device, and a program may call
// step from a thread that never selected a device.
class DeviceOf {
 public:
  explicit DeviceOf(const void* memory) {
    cudaPointerAttributes attributes{};
    const cudaError_t status = cudaPointerGetAttributes(&attributes, memory);
    if (status != cudaSuccess)
      throw sdk::Failure(GANNET_IO_ERROR,
                         std::string("the " GANNET_GPU_API " device cannot be used: ") + cudaGetErrorString(status));
    if (!gpu::is_on_device(attributes))
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "the parameters are in host memory, but this optimizer works on " GANNET_GPU_API
                                                  " devices: use the one for 'cpu'");
    device = attributes.device;
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) static_cast<void>(cudaSetDevice(device));
  }
  ~DeviceOf() {
    if (before_ != device) static_cast<void>(cudaSetDevice(before_));
  }
  DeviceOf(const DeviceOf&) = delete;

  int device = 0;

 private:
  int before_ = 0;
};

// Throws if a kernel could not be launched on `device`.
inline void require_launched(cudaError_t status, int device) {
  if (status == cudaSuccess) return;
  std::string what = std::string("the update's kernel could not be launched: ") + cudaGetErrorString(status);
  if (status == cudaErrorNoKernelImageForDevice) {
    int major = 0, minor = 0;
    static_cast<void>(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    static_cast<void>(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    const std::string capability = std::to_string(major) + std::to_string(minor);
    what +=
        "; the device has compute capability " + capability + ": build the plugin with -DCMAKE_CUDA_ARCHITECTURES=" + capability;
  }
  throw sdk::Failure(status == cudaErrorMemoryAllocation ? GANNET_OUT_OF_MEMORY : GANNET_IO_ERROR, what);
}

// Implements update() of a CUDA optimizer: runs launch(args) on the device with the parameters.
// `launch` returns the status of the kernel launch.
template <class Launch>
void update_on_device(const gannet_update_args& args, Launch&& launch) {
  if (args.numel == 0) return;
  const DeviceOf guard(args.param);
  require_launched(launch(args), guard.device);
}

}  // namespace gannet::rules
