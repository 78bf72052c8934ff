// Accelerators that break one thing each: the fake device's queues, which are sound.
#include <array>
#include <cstring>
#include <thread>

#include "queue.h"

namespace {

using namespace gannet;
using namespace gannet::sdk;
using accelerators::FakeEvent;
using accelerators::FakeQueue;

// Every copy is late, so that who does not wait sees it.
constexpr accelerators::Bus kBus{.delay_us = 3000};

struct SoundDevice : AcceleratorBase {
  static constexpr int32_t kPriority = GANNET_PRIORITY_NEVER;
  static constexpr std::array<gannet_param_spec, 0> kParams{};
  using AcceleratorBase::AcceleratorBase;
  using Event = FakeEvent;
  struct Queue : FakeQueue {
    Queue(const HostServices& host, const char* name) : FakeQueue(host, name, kBus, 1) {}
  };

  uint64_t capabilities() const { return GANNET_ACCELERATOR_FP16; }
  uint32_t device_count() const { return 1; }
  void device_info(uint32_t, gannet_device_info& info) const {
    info.memory_bytes = 1 << 30;
    info.free_bytes = 1 << 20;
    std::strcpy(info.name, "made of host memory");
  }
  std::unique_ptr<Queue> make_queue(uint32_t, const char* name) { return std::make_unique<Queue>(*this, name); }
  void pin(void*, uint64_t) {}
  void unpin(void*) {}
};

struct MoreThanAll : SoundDevice {
  using SoundDevice::SoundDevice;
  void device_info(uint32_t device, gannet_device_info& info) const {
    SoundDevice::device_info(device, info);
    info.free_bytes = info.memory_bytes + 1;
  }
};
struct EarlyEvents : SoundDevice {  // over at once
  using SoundDevice::SoundDevice;
  struct Queue : SoundDevice::Queue {
    using SoundDevice::Queue::Queue;
    FakeEvent record() {
      auto moment = std::make_shared<accelerators::QueuePoint>();
      moment->reach(nullptr);
      return FakeEvent(moment);
    }
  };
  std::unique_ptr<Queue> make_queue(uint32_t, const char* name) { return std::make_unique<Queue>(*this, name); }
};
struct WholeWords : SoundDevice {  // what does not fill one is not copied
  using SoundDevice::SoundDevice;
  struct Queue : SoundDevice::Queue {
    using SoundDevice::Queue::Queue;
    void copy(void* to, const void* from, uint64_t bytes) { SoundDevice::Queue::copy(to, from, bytes / 8 * 8); }
  };
  std::unique_ptr<Queue> make_queue(uint32_t, const char* name) { return std::make_unique<Queue>(*this, name); }
};
struct Hasty : SoundDevice {  // synchronize knows no queues: the default of the SDK, which is for devices without
  using SoundDevice::SoundDevice;
};
struct Deserts : SoundDevice {  // a queue's work is not over when it is destroyed
  using SoundDevice::SoundDevice;
  struct Queue {
    Queue(Deserts& device, const char* name) : queue(new FakeQueue(device, name, kBus, 1)) {}
    ~Queue() {
      std::thread([given = queue] { delete given; }).detach();
    }
    void copy(void* to, const void* from, uint64_t bytes) { queue->copy(to, from, bytes); }
    FakeEvent record() { return queue->record(); }
    void wait(FakeEvent& event) { queue->wait(event); }
    void wait_stream(void*) {}
    FakeQueue* queue;
  };
  std::unique_ptr<Queue> make_queue(uint32_t, const char* name) { return std::make_unique<Queue>(*this, name); }
};
struct PinsOnce : SoundDevice {
  using SoundDevice::SoundDevice;
  void pin(void*, uint64_t) {
    if (is_pinned_) throw Failure(GANNET_INVALID_ARGUMENT, "this memory is pinned already");
    is_pinned_ = true;
  }
  bool is_pinned_ = false;
};

// The SDK's wall checks the device: without it.
struct Unbounded : SoundDevice {
  using SoundDevice::SoundDevice;
};
constexpr gannet_accelerator_api kUnbounded = [] {
  gannet_accelerator_api api = gannet::sdk::detail::kAcceleratorApi<Unbounded>;
  api.device_info = [](void* self, uint32_t, gannet_device_info* info, gannet_error*) -> int32_t {
    static_cast<Unbounded*>(self)->device_info(0, *info);
    return GANNET_OK;
  };
  return api;
}();
constexpr gannet_descriptor kUnboundedDevice = describe(GANNET_KIND_ACCELERATOR, GANNET_TIER_STABLE, "Unbounded", "", "1.0", "",
                                                        "breaks one thing", nullptr, 0, &kUnbounded);

#define DEVICE(type) accelerator<type>(#type, GANNET_TIER_STABLE, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "accelerator/morethanall accelerator/earlyevents accelerator/wholewords accelerator/hasty accelerator/deserts "
    "accelerator/pinsonce accelerator/unbounded",
    GANNET_TIER_STABLE, DEVICE(MoreThanAll), DEVICE(EarlyEvents), DEVICE(WholeWords), DEVICE(Hasty), DEVICE(Deserts),
    DEVICE(PinsOnce), kUnboundedDevice)
