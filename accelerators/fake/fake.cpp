// A device in CPU memory: on any machine, it runs and tests code that otherwise needs a GPU.
// Its queues are worker threads, its events are real, its collectives also run on queues, and the
// config sets its bus speed and delays. LibTorch computes on the CPU, on the
// caller's thread. "auto" never selects this device.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "comm.h"
#include "queue.h"

namespace gannet::accelerators {
namespace {

class Fake : public sdk::AcceleratorBase {
 public:
  static constexpr int32_t kPriority = GANNET_PRIORITY_NEVER;
  static constexpr std::array kParams{
      sdk::at_most(sdk::at_least(sdk::integer("device_count", "1", "devices that it says it has"), 1), 64),
      sdk::at_least(sdk::integer("memory_bytes", "0", "memory that each device says it has; 0: the host's"), 0),
      sdk::at_least(sdk::integer("delay_us", "0", "each copy first sleeps a pseudo-random time up to this"), 0),
      sdk::at_least(sdk::integer("seed", "0", "of these times"), 0),
      sdk::at_least(sdk::integer("bytes_per_second", "0", "speed of each queue's copies; 0: the memory's"), 0),
      sdk::at_least(sdk::integer("failing_copy", "0", "this copy of each queue fails, counted from 1; 0: none"), 0)};

  Fake(const gannet_host& host, const sdk::Params& params)
      : AcceleratorBase(host, params),
        device_count_(static_cast<uint32_t>(params.integer("device_count"))),
        memory_bytes_(static_cast<uint64_t>(params.integer("memory_bytes"))) {
    bus_.delay_us = static_cast<uint64_t>(params.integer("delay_us"));
    bus_.seed = static_cast<uint64_t>(params.integer("seed"));
    bus_.bytes_per_second = static_cast<uint64_t>(params.integer("bytes_per_second"));
    bus_.failing_copy = static_cast<uint64_t>(params.integer("failing_copy"));
  }

  uint64_t capabilities() const { return GANNET_ACCELERATOR_FP16 | GANNET_ACCELERATOR_BF16 | GANNET_ACCELERATOR_SEPARATE_MEMORY; }
  uint32_t device_count() const { return device_count_; }
  void device_info(uint32_t, gannet_device_info& info) const {
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t host_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes;
    info.torch_device_type = 0;  // c10::DeviceType::CPU
    info.memory_bytes = memory_bytes_ ? memory_bytes_ : host_bytes;
    info.free_bytes = std::min(info.memory_bytes, static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes);
    std::strcpy(info.name, "fake device in host memory");
  }
  void synchronize(uint32_t device);
  const char* plugin_device() const { return "cpu"; }  // its memory is CPU memory
  const char* default_comm() const { return "fake"; }

  using Event = FakeEvent;
  // A queue that is registered with the device, so that synchronize finds it.
  class Queue : public FakeQueue {
   public:
    Queue(Fake& fake, uint32_t device, const char* name, uint64_t number)
        : FakeQueue(fake, name, fake.bus_, number), fake_(fake) {
      const std::lock_guard lock(fake_.mutex_);
      fake_.queues_[this] = device;
    }
    ~Queue() {
      const std::lock_guard lock(fake_.mutex_);
      fake_.queues_.erase(this);
    }

   private:
    Fake& fake_;
  };
  std::unique_ptr<Queue> make_queue(uint32_t device, const char* name) {
    return std::make_unique<Queue>(*this, device, name, ++queues_made_);
  }

  // pin locks nothing; it only rejects the mistakes that a real driver rejects.
  void pin(void* address, uint64_t bytes);
  void unpin(void* address);

 private:
  const uint32_t device_count_;
  const uint64_t memory_bytes_;
  Bus bus_;
  std::atomic<uint64_t> queues_made_{0};

  std::mutex mutex_;  // guards the members below
  std::map<Queue*, uint32_t> queues_;
  std::map<uintptr_t, uintptr_t> pinned_;  // maps each range's end to its beginning
};

void Fake::synchronize(uint32_t device) {
  std::vector<FakeEvent> events;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [queue, its_device] : queues_)
      if (its_device == device) events.push_back(queue->record());
  }
  for (auto& event : events) event.wait();
}

void Fake::pin(void* address, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address), end = begin + bytes;
  const std::lock_guard lock(mutex_);
  const auto next = pinned_.upper_bound(begin);  // the first range that ends after our begin
  if (!address || bytes == 0) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "there is no memory to pin");
  if (next != pinned_.end() && next->second < end)
    throw sdk::Failure(GANNET_INVALID_ARGUMENT, "this memory is pinned already, or a part of it is");
  pinned_[end] = begin;
}

void Fake::unpin(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pinned_.begin(), pinned_.end(),
                                  [&](const auto& range) { return range.second == reinterpret_cast<uintptr_t>(address); });
  if (found == pinned_.end()) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "no pinned memory begins at this address");
  pinned_.erase(found);
}

}  // namespace
}  // namespace gannet::accelerators

GANNET_PLUGINS("accelerator/fake comm/fake@fake", GANNET_TIER_STABLE,
               gannet::sdk::accelerator<gannet::accelerators::Fake>(
                   "fake", GANNET_TIER_STABLE, "", "0.1.0",
                   "a device made of CPU memory, for tests: queues are threads, events are real"),
               gannet::sdk::comm<gannet::accelerators::FakeComm>("fake", "fake", GANNET_TIER_STABLE, "", "0.1.0",
                                                                 "the fake device's, between processes of one host: as late as "
                                                                 "its queues"))
