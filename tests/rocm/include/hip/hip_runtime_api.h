// The part of HIP's runtime that Gannet uses, as ROCm 6 declares it, for machines without ROCm: the
// accelerator is compiled against it and linked to hip.cpp, kernels are compiled to assembly. An
// installed ROCm has other values of the enumerations; nothing built with this file runs there.
#pragma once

#include <hip/hip_version.h>
#include <stddef.h>

#ifdef __HIP__
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#else
#define __host__
#define __device__
#define __global__
#define __shared__
#endif
#define __forceinline__ inline __attribute__((always_inline))

typedef enum [[nodiscard]] hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorNoBinaryForGpu = 209,
  hipErrorNotReady = 600
} hipError_t;
typedef enum hipMemoryType {
  hipMemoryTypeUnregistered = 0,
  hipMemoryTypeHost = 1,
  hipMemoryTypeDevice = 2,
  hipMemoryTypeManaged = 3
} hipMemoryType;
typedef enum hipMemcpyKind {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4
} hipMemcpyKind;
typedef enum hipDeviceAttribute_t {
  hipDeviceAttributeComputeCapabilityMajor,
  hipDeviceAttributeComputeCapabilityMinor,
  hipDeviceAttributeMultiprocessorCount
} hipDeviceAttribute_t;

typedef struct hipPointerAttribute_t {
  enum hipMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  int isManaged;
  unsigned allocationFlags;
} hipPointerAttribute_t;
typedef struct hipDeviceProp_t {
  char name[256];
  size_t totalGlobalMem;
  int major;
  int minor;
} hipDeviceProp_t;
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct dim3 {
  unsigned x, y, z;
#ifdef __cplusplus
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
#endif
} dim3;

#define hipEventDisableTiming 0x2
#define hipStreamNonBlocking 0x1
#define hipStreamLegacy ((hipStream_t)1)
#define hipHostRegisterPortable 0x1

extern "C" {
hipError_t hipGetDeviceCount(int* count);
hipError_t hipGetDevice(int* device);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int device);
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device);
hipError_t hipDeviceGetStreamPriorityRange(int* lowest, int* highest);
const char* hipGetErrorString(hipError_t error);
hipError_t hipGetLastError(void);
hipError_t hipMemGetInfo(size_t* available, size_t* total);
hipError_t hipMallocAsync(void** memory, size_t bytes, hipStream_t stream);
hipError_t hipFreeAsync(void* memory, hipStream_t stream);
hipError_t hipFree(void* memory);
hipError_t hipHostRegister(void* memory, size_t bytes, unsigned flags);
hipError_t hipHostUnregister(void* memory);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* memory);
hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventSynchronize(hipEvent_t event);
// What the compiler makes of kernel<<<blocks, threads, shared, stream>>>(...).
hipError_t hipLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments, size_t shared, hipStream_t stream);
hipError_t __hipPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared, hipStream_t stream);
hipError_t __hipPopCallConfiguration(dim3* blocks, dim3* threads, size_t* shared, hipStream_t* stream);
}
