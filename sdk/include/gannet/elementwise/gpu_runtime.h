// The GPU runtime that a file is compiled for: CUDA's, or HIP's (AMD GPUs) under CUDA's names, so
// that one source serves both. HIP defines the same functions with the prefix `hip`.
//
// A file is HIP's if a HIP compiler compiles it, or if __HIP_PLATFORM_AMD__ is defined, as in host
// code by another compiler.
//
//   GANNET_GPU        "cuda" or "rocm": the device's name in configs, and in "optimizer/NAME@" GANNET_GPU
//   GANNET_GPU_API    "CUDA" or "HIP": its name in messages
//   GANNET_GPU_VERSION("1.0.0"), GANNET_GPU_NOTE    a plugin's version, and the end of its description.
//                     For HIP they say that it was compiled and never run, unless GANNET_RAN_ON_AMD is defined.
#pragma once

#if !defined(__HIP__) && !defined(__HIP_PLATFORM_AMD__)

#include <cuda_runtime_api.h>
#define GANNET_GPU "cuda"
#define GANNET_GPU_API "CUDA"
#define GANNET_GPU_VERSION(version_) version_
#define GANNET_GPU_NOTE ""

namespace gannet::rules::gpu {
inline bool is_on_device(const cudaPointerAttributes& memory) {
  return memory.type == cudaMemoryTypeDevice || memory.type == cudaMemoryTypeManaged;
}
}  // namespace gannet::rules::gpu

#else

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif
#include <hip/hip_runtime_api.h>

#include <cstdlib>  // before the C++ library's headers, which a HIP compiler wraps
#define GANNET_GPU "rocm"
#define GANNET_GPU_API "HIP"
#ifdef GANNET_RAN_ON_AMD
#define GANNET_GPU_VERSION(version_) version_
#define GANNET_GPU_NOTE ""
#else
#define GANNET_GPU_VERSION(version_) "0.1.0"
#define GANNET_GPU_NOTE "; compiled, never run on an AMD GPU"
#endif

#define cudaDevAttrComputeCapabilityMajor hipDeviceAttributeComputeCapabilityMajor
#define cudaDevAttrComputeCapabilityMinor hipDeviceAttributeComputeCapabilityMinor
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaDeviceAttr hipDeviceAttribute_t
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaDeviceGetStreamPriorityRange hipDeviceGetStreamPriorityRange
#define cudaDeviceProp hipDeviceProp_t
#define cudaErrorMemoryAllocation hipErrorOutOfMemory
#define cudaErrorNoDevice hipErrorNoDevice
#define cudaErrorNoKernelImageForDevice hipErrorNoBinaryForGpu
#define cudaErrorNotReady hipErrorNotReady
#define cudaError_t hipError_t
#define cudaEventCreateWithFlags hipEventCreateWithFlags
#define cudaEventDestroy hipEventDestroy
#define cudaEventDisableTiming hipEventDisableTiming
#define cudaEventQuery hipEventQuery
#define cudaEventRecord hipEventRecord
#define cudaEventSynchronize hipEventSynchronize
#define cudaEvent_t hipEvent_t
#define cudaFree hipFree
#define cudaFreeAsync hipFreeAsync
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaHostRegister hipHostRegister
#define cudaHostRegisterPortable hipHostRegisterPortable
#define cudaHostUnregister hipHostUnregister
#define cudaMallocAsync hipMallocAsync
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDefault hipMemcpyDefault
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyKind hipMemcpyKind
#define cudaPointerAttributes hipPointerAttribute_t
#define cudaPointerGetAttributes hipPointerGetAttributes
#define cudaSetDevice hipSetDevice
#define cudaStreamCreateWithPriority hipStreamCreateWithPriority
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess

// A handle of the default stream that is not null. HIP has one since ROCm 6.2.
#ifdef hipStreamLegacy
#define cudaStreamLegacy hipStreamLegacy
#else
#define cudaStreamLegacy nullptr
#endif

namespace gannet::rules::gpu {
inline bool is_on_device(const hipPointerAttribute_t& memory) {
#if HIP_VERSION_MAJOR >= 6
  return memory.type == hipMemoryTypeDevice || memory.type == hipMemoryTypeManaged;
#else
  return memory.memoryType == hipMemoryTypeDevice || memory.isManaged;
#endif
}
}  // namespace gannet::rules::gpu

#endif
