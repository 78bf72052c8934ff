// The queues of a GPU: a separate stream for copies, and CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <gannet/sdk_accelerator.hpp>
#include <memory>
#include <string>

namespace gannet::accelerators {

class CudaEvent {
 public:
  // Records the event on a stream of the device.
  CudaEvent(uint32_t device, cudaStream_t stream);
  bool is_over();
  void wait();
  void block(void* stream);
  cudaEvent_t handle() const { return event_.get(); }

 private:
  struct EventDeleter {
    void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }  // the driver frees it once it has completed
  };
  uint32_t device_;
  std::unique_ptr<CUevent_st, EventDeleter> event_;
};

class CudaQueue {
 public:
  CudaQueue(const sdk::HostServices& host, uint32_t device, const char* name);
  ~CudaQueue();
  CudaQueue(const CudaQueue&) = delete;

  void copy(void* to, const void* from, uint64_t bytes);
  CudaEvent record() { return CudaEvent(device_, stream_); }
  void wait(CudaEvent& event);
  void wait_stream(void* stream);
  void* stream() { return stream_; }

 private:
  const sdk::HostServices& host_;
  const uint32_t device_;
  const std::string name_;
  cudaStream_t stream_ = nullptr;
};

void pin_memory(void* address, uint64_t bytes);
void unpin_memory(void* address);

}  // namespace gannet::accelerators
