#include "streams.h"

#include <array>
#include <map>
#include <mutex>

#include "memory.h"

namespace gannet::accelerators::checked {

namespace {

std::atomic<uint32_t> devices{1};
thread_local uint32_t device_here = 0;
thread_local std::array<c10::StreamId, kMostDevices> stream_here{};

}  // namespace

Stream& stream_of(uint32_t device, c10::StreamId id) {
  static auto* const mutex = new std::mutex;
  static auto* const streams = new std::map<std::pair<uint32_t, c10::StreamId>, Stream>;
  TORCH_CHECK(device < kMostDevices, "there is no checked device ", device);
  const std::lock_guard lock(*mutex);
  const auto found = streams->find({device, id});
  if (found != streams->end()) return found->second;
  Actor& actor = Checker::get().make_actor("stream " + std::to_string(id) + " of device " + std::to_string(device));
  return streams->emplace(std::pair(device, id), Stream{actor, device, id}).first->second;
}

Stream& current_stream(uint32_t device) {
  TORCH_CHECK(device < kMostDevices, "there is no checked device ", device);
  return stream_of(device, stream_here[device]);
}

c10::StreamId exchange_stream(uint32_t device, c10::StreamId id) {
  TORCH_CHECK(device < kMostDevices, "there is no checked device ", device);
  return std::exchange(stream_here[device], id);
}

c10::StreamId next_of_pool(uint32_t device) {
  static std::array<std::atomic<c10::StreamId>, kMostDevices> taken{};
  return taken.at(device)++ % kPoolStreams + 1;
}

uint32_t device_count() { return devices; }
void set_device_count(uint32_t count) {
  if (count > devices) devices = count;
}
uint32_t current_device() { return device_here; }
void set_current_device(uint32_t device) {
  TORCH_CHECK(device < device_count(), "there is no checked device ", device, ", only ", device_count());
  device_here = device;
}

}  // namespace gannet::accelerators::checked
