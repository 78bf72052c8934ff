// The devices' streams: the current stream of each thread, and the clock of each stream. A stream
// runs its work immediately; only its clock models the ordering.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

#include "checker.h"

namespace gannet::accelerators::checked {

struct Stream {
  Actor& actor;
  uint32_t device;
  c10::StreamId id;  // 0 for the default stream
};

// A stream's native handle is the address of its Stream object, which is created on first use and
// never destroyed.
Stream& stream_of(uint32_t device, c10::StreamId id);
inline Stream& stream_of(const c10::Stream& stream) {
  return stream_of(static_cast<uint32_t>(stream.device_index()), stream.id());
}
// Returns the calling thread's current stream.
Stream& current_stream(uint32_t device);
c10::StreamId exchange_stream(uint32_t device, c10::StreamId id);
c10::StreamId next_of_pool(uint32_t device);  // cycles through 1 to kPoolStreams
constexpr c10::StreamId kPoolStreams = 32;

// There is one device count per process, which only grows, and one current device per thread.
uint32_t device_count();
void set_device_count(uint32_t count);
uint32_t current_device();
void set_current_device(uint32_t device);

inline c10::Device torch_device(uint32_t device) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
}

// A LibTorch event: the clock of the work launched on its stream before it was recorded.
struct Event {
  Clock clock;
};

}  // namespace gannet::accelerators::checked
