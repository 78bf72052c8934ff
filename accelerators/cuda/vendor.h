// Constants for the differences between NVIDIA's and AMD's GPUs, besides the names of the runtime's
// functions (gannet/elementwise/gpu_runtime.h).
#pragma once

#include <dlfcn.h>
#include <gannet/elementwise/gpu_runtime.h>
#include <unistd.h>

#include <gannet/sdk.hpp>
#include <string>

namespace gannet::accelerators::vendor {

#ifdef __HIP_PLATFORM_AMD__

inline constexpr const char* kDriver = "AMD driver";
#ifndef GANNET_AMD_DRIVER
#define GANNET_AMD_DRIVER "/dev/kfd"
#endif
inline constexpr const char* kDriverFile = GANNET_AMD_DRIVER;
inline constexpr const char* kVisibleDevices = "HIP_VISIBLE_DEVICES";
inline constexpr const char* kTool = "rocm-smi";
inline constexpr const char* kTorchHalf = "libtorch_hip.so";
inline constexpr const char* kHalf = "ROCm";
inline constexpr const char* kTorch = "install a LibTorch for ROCm";
inline constexpr int kFirstWithBfloat16 = 9;                 // gfx9
inline constexpr int32_t kPriority = GANNET_PRIORITY_NEVER;  // until it has run on such a device
inline constexpr const char* kAbout =
    "AMD GPUs, by LibTorch's ROCm half, to which they are CUDA devices; compiled, never run on an AMD GPU";
inline bool has_driver() { return access(kDriverFile, F_OK) == 0; }
inline std::string runtime_version() { return std::to_string(HIP_VERSION_MAJOR) + "." + std::to_string(HIP_VERSION_MINOR); }

#else

inline constexpr const char* kDriver = "NVIDIA driver";
inline constexpr const char* kDriverFile = "libcuda.so.1";
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
inline constexpr const char* kTool = "nvidia-smi";
inline constexpr const char* kTorchHalf = "libtorch_cuda.so";
inline constexpr const char* kHalf = "CUDA";
inline constexpr const char* kTorch =
    "install a LibTorch with CUDA and the NVIDIA libraries it needs (the full PyTorch wheel has them)";
inline constexpr int kFirstWithBfloat16 = 8;
inline constexpr int32_t kPriority = GANNET_PRIORITY_DEVICE;
inline constexpr const char* kAbout = "NVIDIA GPUs, by LibTorch's CUDA half";
inline bool has_driver() { return dlopen(kDriverFile, RTLD_LAZY | RTLD_LOCAL) != nullptr; }
inline std::string runtime_version() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

#endif

inline constexpr const char* kApi = GANNET_GPU_API;
inline std::string device(uint32_t index) { return std::string(kApi) + " device " + std::to_string(index); }
inline std::string remedy() { return ", or set \"accelerator\": {\"type\": \"cpu\"} in the config"; }

}  // namespace gannet::accelerators::vendor
