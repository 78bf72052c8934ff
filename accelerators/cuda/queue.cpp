#include "queue.h"

#include "runtime.h"
#include "vendor.h"

namespace gannet::accelerators {

// ---- GpuEvent -------------------------------------------------------------------------------------------------------

// An event belongs to the device that is current when it is created, and can be recorded only on
// that device's streams.
GpuEvent::GpuEvent(uint32_t device, cudaStream_t stream) : device_(device) {
  const DeviceScope current(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event on " + vendor::device(device));
  event_.reset(event);
  check(cudaEventRecord(event, stream), "recording an event on " + vendor::device(device));
}

bool GpuEvent::is_over() {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // clears the error, which the next cudaGetLastError would return
    return false;
  }
  check(status, "work in a queue of " + vendor::device(device_));
  return true;
}

void GpuEvent::wait() { check(cudaEventSynchronize(event_.get()), "work in a queue of " + vendor::device(device_)); }

void GpuEvent::block(void* stream) {
  const DeviceScope current(device_);  // cudaStreamLegacy is a stream of the current device
  check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_.get(), 0),
        "letting a stream of " + vendor::device(device_) + " wait for a queue");
}

// ---- GpuQueue -------------------------------------------------------------------------------------------------------

GpuQueue::GpuQueue(const sdk::HostServices& host, uint32_t device, const char* name) : host_(host), device_(device), name_(name) {
  const DeviceScope current(device);
  // The stream is non-blocking, because otherwise the legacy default stream, on which LibTorch
  // computes, would wait for every copy and every copy would wait for it. It has the highest
  // priority, so that a collective in the queue starts when a block of a compute kernel ends, and
  // not when all have.
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking " + vendor::device(device) + " for priorities");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
        "making the queue '" + name_ + "' on " + vendor::device(device));
}

GpuQueue::~GpuQueue() {
  const cudaError_t status = cudaStreamSynchronize(stream_);
  if (status != cudaSuccess)
    host_.warn("queue '" + name_ + "' of " + vendor::device(device_) + " ended with a failure: " + cudaGetErrorString(status));
  static_cast<void>(cudaStreamDestroy(stream_));
}

// The addresses alone identify the kind of memory (unified addressing, on every 64-bit system).
void GpuQueue::copy(void* to, const void* from, uint64_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_),
        "a copy of " + std::to_string(bytes) + " bytes in queue '" + name_ + "' of " + vendor::device(device_));
}

void GpuQueue::wait(GpuEvent& event) {
  check(cudaStreamWaitEvent(stream_, event.handle(), 0),
        "letting queue '" + name_ + "' of " + vendor::device(device_) + " wait for an event");
}

void GpuQueue::wait_stream(void* stream) {
  GpuEvent event(device_, static_cast<cudaStream_t>(stream));
  wait(event);
}

// ---- Pinned memory ---------------------------------------------------------------------------------------------------

void pin_memory(void* address, uint64_t bytes) {
  check(cudaHostRegister(address, bytes, cudaHostRegisterPortable),
        "page-locking " + std::to_string(bytes) + " bytes of host memory");
}

void unpin_memory(void* address) { check(cudaHostUnregister(address), "unlocking host memory"); }

}  // namespace gannet::accelerators
