// The devices' streams: which one is current, and what each has been given. A stream runs its work at once; its clock is what
// orders it.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

#include "checker.h"

namespace gannet::accelerators::checked {

struct Stream {
  Actor& actor;
  uint32_t device;
  c10::StreamId id;  // 0: the default stream
};

// The native handle of a stream is the address of one of these. Made when it is first asked for; never null, never destroyed.
Stream& stream_of(uint32_t device, c10::StreamId id);
inline Stream& stream_of(const c10::Stream& stream) {
  return stream_of(static_cast<uint32_t>(stream.device_index()), stream.id());
}
// Of the calling thread.
Stream& current_stream(uint32_t device);
c10::StreamId exchange_stream(uint32_t device, c10::StreamId id);
c10::StreamId next_of_pool(uint32_t device);  // 1 to kPoolStreams, one after the other
constexpr c10::StreamId kPoolStreams = 32;

// Of the process; the calling thread's.
uint32_t device_count();
void set_device_count(uint32_t count);
uint32_t current_device();
void set_current_device(uint32_t device);

inline c10::Device torch_device(uint32_t device) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
}

// An event of LibTorch's, and of the plugin's queues: what its stream had been given when it was recorded.
struct Event {
  Clock clock;
};

}  // namespace gannet::accelerators::checked
