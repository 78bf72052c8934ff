// A stand-in for HIP's runtime, by which the loop of element-wise rules for GPUs (gannet/elementwise/loop.cuh) runs on the host:
// the parts of the interface that the loop uses, one device whose memory is the host's, and a launch that runs each thread of
// each block in turn. The file's CMakeLists.txt writes the launches, which are not C++, as calls of hosted::launch().
#pragma once

#include <gannet/abi.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <gannet/sdk.hpp>
#include <gannet/sdk_float16.hpp>

#define HIP_VERSION_MAJOR 6
enum hipError_t { hipSuccess, hipErrorOutOfMemory, hipErrorNoBinaryForGpu };
enum hipDeviceAttribute_t {
  hipDeviceAttributeComputeCapabilityMajor,
  hipDeviceAttributeComputeCapabilityMinor,
  hipDeviceAttributeMultiprocessorCount
};
enum hipMemoryType { hipMemoryTypeDevice, hipMemoryTypeManaged };
enum hipMemcpyKind { hipMemcpyDeviceToDevice };
using hipStream_t = void*;
struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
};
inline const char* hipGetErrorString(hipError_t) { return "no error"; }
inline hipError_t hipGetLastError() { return hipSuccess; }
inline hipError_t hipGetDevice(int* device) { return *device = 0, hipSuccess; }
inline hipError_t hipSetDevice(int) { return hipSuccess; }
inline hipError_t hipPointerGetAttributes(hipPointerAttribute_t* found, const void*) {
  return *found = {hipMemoryTypeDevice, 0}, hipSuccess;
}
// Few processors: a thread of a long piece updates many packs.
inline hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int) { return *value = 1, hipSuccess; }
inline hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind, hipStream_t) {
  return std::memcpy(to, from, bytes), hipSuccess;
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(most_threads_)
#define _Float16 gannet::sdk::Float16  // g++ 12 has no such type in C++

namespace hosted {

struct Position {
  unsigned thread, block, threads, blocks;
};
inline thread_local Position position{};

// Threads of the launches in turn forward and backward: no thread reads what another one writes.
template <class Kernel>
void launch(unsigned blocks, unsigned threads, const Kernel& kernel) {
  static std::atomic<unsigned> launches{0};
  const bool is_forward = launches++ % 2 == 0;
  const uint64_t all = uint64_t{blocks} * threads;
  for (uint64_t i = 0; i < all; ++i) {
    const uint64_t at = is_forward ? i : all - 1 - i;
    position = {static_cast<unsigned>(at % threads), static_cast<unsigned>(at / threads), threads, blocks};
    kernel();
  }
}

}  // namespace hosted

#define __builtin_amdgcn_workitem_id_x() hosted::position.thread
#define __builtin_amdgcn_workgroup_id_x() hosted::position.block
#define __builtin_amdgcn_workgroup_size_x() hosted::position.threads
#define __builtin_amdgcn_grid_size_x() (hosted::position.blocks * hosted::position.threads)
#define __builtin_amdgcn_fence(order_, scope_) static_cast<void>(0)
#define __builtin_amdgcn_s_barrier() static_cast<void>(0)
