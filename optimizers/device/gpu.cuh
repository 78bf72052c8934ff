// A GPU as the device of optimizers that are more than an element-wise rule. Such an optimizer is a
// class template over its device; in tests, loops on the host take the place of this device
// (tests/optimizers/hosted.h).
//
//   typename Device::Work work(device_, args);                  // one call of the host, on args.stream and args.param's device
//   double* totals = work.template memory<double>(kTotals, n);  // device memory, undefined until the call writes it
//   work.run(kernel, blocks);                                   // queues a kernel (team.h)
//   work.each(rule, args);                                      // queues an element-wise rule over a range
//   work.to_host(results, totals, n);                           // waits for all of the above
//
// The memory grows to the largest request and is kept until the object is destroyed. Each call
// waits for the previous call of the same object, even on a different stream, since both use that
// memory.
#pragma once

#include <gannet/elementwise/gpu.h>

#include <gannet/elementwise/loop.cuh>
#include <string>
#include <vector>

#include "optimizers/device/part.h"
#include "optimizers/device/team.h"

namespace gannet::rules {

struct ThreadBlock {
  template <class T>
  struct PerThread {
    T value;
    GANNET_DEVICE T& operator[](unsigned) { return value; }
  };
  template <class Body>
  GANNET_DEVICE void each(Body&& body) const {
    body(gpu::thread_index());
    gpu::wait_for_block();
  }
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) run_kernel(const Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  kernel(ThreadBlock(), gpu::block_index(), shared);
}

class Gpu {
 public:
  using BFloat16 = gpu::BFloat16;
  using Half = gpu::Half;
  template <class T>
  static GANNET_DEVICE auto widen(T value) {
    return gpu::widen(value);
  }
  template <class Out>
  static GANNET_DEVICE void narrow(float value, Out& to) {
    gpu::narrow(value, to);
  }
  static GANNET_DEVICE int to_integer(float value) { return gpu::to_integer(value); }
  static GANNET_DEVICE float copy_sign(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }

  class Work;
  Gpu() = default;
  Gpu(const Gpu&) = delete;
  // At process exit the driver may already be gone. These calls may then fail, which is harmless:
  // the memory went with the driver.
  ~Gpu() {
    if (last_ == nullptr) return;
    int before = 0;
    static_cast<void>(cudaGetDevice(&before));
    static_cast<void>(cudaSetDevice(device_));
    static_cast<void>(cudaEventSynchronize(last_));
    for (const Buffer& buffer : buffers_) static_cast<void>(cudaFree(buffer.data));
    static_cast<void>(cudaEventDestroy(last_));
    static_cast<void>(cudaSetDevice(before));
  }

 private:
  struct Buffer {
    void* data = nullptr;
    uint64_t bytes = 0;
  };
  std::vector<Buffer> buffers_;  // one per slot
  cudaEvent_t last_ = nullptr;   // the end of the last call
  int device_ = 0;
};

class Gpu::Work {
 public:
  Work(Gpu& gpu, const gannet_update_args& args)
      : gpu_(gpu), guard_(args.param), stream_(static_cast<cudaStream_t>(args.stream)) {
    if (gpu_.last_ == nullptr) {
      require(cudaEventCreateWithFlags(&gpu_.last_, cudaEventDisableTiming), "no " GANNET_GPU_API " event could be made");
      gpu_.device_ = guard_.device;
    } else {
      require(cudaStreamWaitEvent(stream_, gpu_.last_, 0), "the stream cannot wait for the optimizer's last call");
    }
  }
  ~Work() { static_cast<void>(cudaEventRecord(gpu_.last_, stream_)); }
  Work(const Work&) = delete;

  // Returns memory for `count` elements of T. Each slot is one buffer; a later request may move it.
  template <class T>
  T* memory(size_t slot, uint64_t count) {
    if (slot >= gpu_.buffers_.size()) gpu_.buffers_.resize(slot + 1);
    Buffer& buffer = gpu_.buffers_[slot];
    const uint64_t bytes = count * sizeof(T);
    if (bytes > buffer.bytes) {
      if (buffer.data != nullptr) static_cast<void>(cudaFreeAsync(buffer.data, stream_));
      buffer = {};
      const cudaError_t status = cudaMallocAsync(&buffer.data, bytes, stream_);
      if (status != cudaSuccess) buffer.data = nullptr;
      require(status, "the optimizer's own " + std::to_string(bytes) + " bytes of device memory could not be had");
      buffer.bytes = bytes;
    }
    return static_cast<T*>(buffer.data);
  }

  template <class Kernel>
  void run(const Kernel& kernel, uint64_t blocks) {
    constexpr uint64_t kMost = (uint64_t{1} << 31) - 1;
    if (blocks == 0) return;
    if (blocks > kMost)
      throw sdk::Failure(GANNET_UNSUPPORTED, "a tensor needs " + std::to_string(blocks) +
                                                 " thread blocks, and " GANNET_GPU_API " launches 2^31 - 1 at most");
    run_kernel<<<static_cast<unsigned>(blocks), Kernel::kThreads, 0, stream_>>>(kernel);
    require_launched(cudaGetLastError(), guard_.device);
  }
  template <class Rule>
  void each(const Rule& rule, const gannet_update_args& args) {
    if (args.numel > 0) require_launched(gpu::run_elementwise(rule, args), guard_.device);
  }

  // Both of these wait for all work on the stream, so the host memory need not be page-locked and
  // may be reused at once.
  template <class T>
  void to_device(T* to, const T* from, uint64_t count) {
    copy(to, from, count * sizeof(T), cudaMemcpyHostToDevice);
  }
  template <class T>
  void to_host(T* to, const T* from, uint64_t count) {
    copy(to, from, count * sizeof(T), cudaMemcpyDeviceToHost);
  }

 private:
  static void require(cudaError_t status, const std::string& otherwise) {
    if (status == cudaSuccess) return;
    throw sdk::Failure(status == cudaErrorMemoryAllocation ? GANNET_OUT_OF_MEMORY : GANNET_IO_ERROR,
                       otherwise + ": " + cudaGetErrorString(status));
  }
  void copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    require(cudaMemcpyAsync(to, from, bytes, kind, stream_), "the optimizer's numbers could not be copied");
    require(cudaStreamSynchronize(stream_), "the optimizer's work on the device failed");
  }

  Gpu& gpu_;
  const DeviceOf guard_;
  cudaStream_t stream_;
};

}  // namespace gannet::rules
