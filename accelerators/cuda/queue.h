// The queues of a GPU: a separate stream for copies, and the runtime's events.
#pragma once

#include <gannet/elementwise/gpu_runtime.h>

#include <cstdint>
#include <gannet/sdk_accelerator.hpp>
#include <memory>
#include <string>
#include <type_traits>

namespace gannet::accelerators {

class GpuEvent {
 public:
  // Records the event on a stream of the device.
  GpuEvent(uint32_t device, cudaStream_t stream);
  bool is_over();
  void wait();
  void block(void* stream);
  cudaEvent_t handle() const { return event_.get(); }

 private:
  struct EventDeleter {
    // The driver frees the event once it has completed.
    void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
  };
  uint32_t device_;
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventDeleter> event_;
};

class GpuQueue {
 public:
  GpuQueue(const sdk::HostServices& host, uint32_t device, const char* name);
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;

  void copy(void* to, const void* from, uint64_t bytes);
  GpuEvent record() { return GpuEvent(device_, stream_); }
  void wait(GpuEvent& event);
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
