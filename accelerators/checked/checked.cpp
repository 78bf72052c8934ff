// A device in host memory that checks how it is used. Its tensors have LibTorch's device type
// PrivateUse1, the host cannot dereference their addresses, and backward runs on a device thread.
// LibTorch's CPU kernels compute immediately on the caller's thread. The ordering by events, waits
// and streams is tracked with logical clocks (clocks.h), so that a missing event is an error that
// names both operations, whatever the timing. "auto" never selects this device.
#include <algorithm>
#include <array>
#include <cstring>
#include <gannet/sdk_accelerator.hpp>

#include "comm.h"
#include "memory.h"
#include "optimizer_names.h"
#include "queue.h"
#include "register.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

class Checked : public sdk::AcceleratorBase {
 public:
  static constexpr int32_t kPriority = GANNET_PRIORITY_NEVER;
  static constexpr std::array kParams{
      sdk::at_most(sdk::at_least(sdk::integer("device_count", "1", "devices that it says it has"), 1), kMostDevices),
      sdk::at_least(sdk::integer("memory_bytes", "0", "memory of each device; 0: the host's"), 0)};

  // LibTorch keeps the devices of any earlier instance in this process, so they remain registered.
  // The latest instance sets the memory limit.
  Checked(const gannet_host& host, const sdk::Params& params)
      : AcceleratorBase(host, params), device_count_(static_cast<uint32_t>(params.integer("device_count"))) {
    set_device_count(device_count_);
    Memory::get().set_limit(static_cast<uint64_t>(params.integer("memory_bytes")));
    register_with_torch();
  }

  uint64_t capabilities() const {
    return GANNET_ACCELERATOR_FP16 | GANNET_ACCELERATOR_BF16 | GANNET_ACCELERATOR_PINNED_MEMORY | GANNET_ACCELERATOR_STREAMS |
           GANNET_ACCELERATOR_SEPARATE_MEMORY;
  }
  uint32_t device_count() const { return device_count_; }
  void device_info(uint32_t device, gannet_device_info& info) const {
    info.torch_device_type = static_cast<int32_t>(c10::DeviceType::PrivateUse1);
    info.memory_bytes = Memory::get().limit();
    info.free_bytes = std::max<uint64_t>(Memory::get().free_bytes(device), 1);  // 0 would mean unknown
    std::strcpy(info.name, "checked device in host memory");
  }
  void set_device(uint32_t device) { set_current_device(device); }
  void synchronize(uint32_t) { Checker::get().host_waits_for_all(); }
  void* native_stream(uint32_t device, int64_t stream_id) {
    return device < kMostDevices ? &stream_of(device, stream_id) : nullptr;
  }
  const char* default_comm() const { return "checked"; }

  using Queue = CheckedQueue;
  using Event = QueueEvent;
  std::unique_ptr<Queue> make_queue(uint32_t, const char* name) { return std::make_unique<Queue>(*this, name); }
  void pin(void* address, uint64_t bytes) { Memory::get().pin(address, bytes); }
  void unpin(void* address) { Memory::get().unpin(address); }

 private:
  const uint32_t device_count_;
};

constexpr gannet_descriptor kAccelerator =
    sdk::accelerator<Checked>("checked", GANNET_TIER_PINNED, GANNET_FINGERPRINT, "0.1.0",
                              "a device in host memory that reports unordered uses of a buffer, for tests");
constexpr gannet_descriptor kComm = sdk::comm<CheckedComm>("checked", "checked", GANNET_TIER_PINNED, GANNET_FINGERPRINT, "0.1.0",
                                                           "collectives between processes of one host, for the checked device");

}  // namespace
}  // namespace gannet::accelerators::checked

// Expands GANNET_PLUGINS by hand, since the optimizers' descriptors are in other translation units
// (optimizers_end.h).
GANNET_PLUGIN_NOTE(GANNET_TIER_PINNED, 0, GANNET_FINGERPRINT, "",
                   "accelerator/checked comm/checked@checked" GANNET_CHECKED_OPTIMIZER_NAMES);
namespace gannet::accelerators::checked {
extern "C" {
__attribute__((visibility("default"))) extern const gannet_descriptor* const GANNET_EXPORT_SYMBOL[];
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&kAccelerator, &kComm, GANNET_CHECKED_OPTIMIZERS, nullptr};
}
}  // namespace gannet::accelerators::checked
