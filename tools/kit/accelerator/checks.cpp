// Checks of an accelerator's description of itself and of its devices, and the table of its checks.
#include "kit/accelerator/checks.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/text.h"

namespace gannet::kit {

Device::Device(const Subject& subject)
    : plugin_(*subject.plugin), api_(*interfaces::api_of<gannet_accelerator_api>(plugin_)), params_(subject.parsed()) {
  CallOutcome outcome;
  object_ = std::make_unique<PluginObject>(plugin_, params_.view(), host_.table(), outcome);
  require_explained("create", outcome);
  if (outcome.status == GANNET_UNAVAILABLE) throw SkippedCheck(formatted("there is no such device here: {}", outcome.message));
  require_ok("create", outcome);
}

uint32_t Device::count() const {
  const CallScope calling("device_count", 0);
  return api_.device_count(self());
}

bool Device::has_queues() const { return api_.capabilities(self()) & GANNET_ACCELERATOR_QUEUES; }

namespace {

constexpr uint64_t kKnown = GANNET_ACCELERATOR_FP16 | GANNET_ACCELERATOR_BF16 | GANNET_ACCELERATOR_PINNED_MEMORY |
                            GANNET_ACCELERATOR_STREAMS | GANNET_ACCELERATOR_QUEUES | GANNET_ACCELERATOR_SEPARATE_MEMORY;

void fail(const std::string& found, const std::string& expected = "") { throw CheckFailure(found, text_of(place()), expected); }

void describe_devices(Subject& subject) {
  const Device device(subject);
  const uint32_t count = device.count();
  if (count == 0) fail("device_count is 0", "GANNET_UNAVAILABLE from create where there is no device");
  if (const uint32_t again = device.count(); again != count) fail(formatted("device_count is {}, and then {}", count, again));
  for (uint32_t d = 0; d < count; ++d) {
    set_config(formatted("device {} of {}", d, count));
    gannet_device_info info{};
    std::memset(info.name, 'x', sizeof(info.name));
    info.struct_size = sizeof(info);
    const CallOutcome outcome = call("device_info", device.plugin(), device.api().device_info, device.self(), d, &info);
    require_explained("device_info", outcome);
    require_ok("device_info", outcome);
    const size_t length = ::strnlen(info.name, sizeof(info.name));
    if (length == 0 || length == sizeof(info.name))
      fail("the device's name is empty, or does not end", "a name of 1 to 127 bytes");
    if (const std::string name(info.name, length); printable(name) != name)
      fail(formatted("the device's name has control characters: '{}'", printable(name)));
    if (info.struct_size != sizeof(info)) fail("device_info wrote struct_size", "that is the host's");
    if (info.memory_bytes == 0) fail("memory_bytes is 0", "the device's memory");
    if (info.free_bytes > info.memory_bytes)
      fail(formatted("{} of {} bytes are free", info.free_bytes, info.memory_bytes), "free_bytes is at most memory_bytes");
    if (info.torch_device_type < 0 || info.torch_device_type > 255)
      fail(formatted("torch_device_type is {}", info.torch_device_type), "the number of a c10::DeviceType");
    for (const auto& [name, function] :
         {std::pair{"set_device", device.api().set_device}, std::pair{"synchronize", device.api().synchronize}}) {
      const CallOutcome set = call(name, device.plugin(), function, device.self(), d);
      require_explained(name, set);
      require_ok(name, set);
    }
  }
}

void refuse_devices(Subject& subject) {
  const Device device(subject);
  for (const uint32_t wrong : {device.count(), device.count() + 100, UINT32_MAX}) {
    set_config(formatted("device {} of {}", wrong, device.count()));
    const auto refused = [&](const char* name, const CallOutcome& outcome) {
      require_explained(name, outcome);
      if (outcome.ok()) fail(formatted("{} accepts device {}, and there are {}", name, wrong, device.count()));
    };
    gannet_device_info info{};
    info.struct_size = sizeof(info);
    refused("device_info", call("device_info", device.plugin(), device.api().device_info, device.self(), wrong, &info));
    refused("set_device", call("set_device", device.plugin(), device.api().set_device, device.self(), wrong));
    refused("synchronize", call("synchronize", device.plugin(), device.api().synchronize, device.self(), wrong));
    void* queue = nullptr;
    if (device.has_queues())
      refused("queue_create",
              call("queue_create", device.plugin(), device.api().queue_create, device.self(), wrong, "queue", &queue));
  }
}

void describe_itself(Subject& subject) {
  const Device device(subject);
  const auto& api = device.api();
  const uint64_t bits = api.capabilities(device.self());
  if (bits & ~kKnown) fail(formatted("it has capabilities that this ABI does not know (bits {:#x})", bits & ~kKnown));
  if (api.capabilities(device.self()) != bits) fail("capabilities change from call to call");
  const bool functions[] = {!!api.queue_create,      !!api.queue_destroy,     !!api.queue_copy, !!api.event_record,
                            !!api.event_destroy,     !!api.event_query,       !!api.event_wait, !!api.queue_wait_event,
                            !!api.queue_wait_stream, !!api.stream_wait_event, !!api.pin,        !!api.unpin};
  const auto there = std::count(std::begin(functions), std::end(functions), true);
  const int wanted = device.has_queues() ? 12 : 0;
  if (there != wanted)
    fail(formatted("{} of the 12 functions of queues are there, and GANNET_ACCELERATOR_QUEUES is {}", there,
                   device.has_queues() ? "set" : "not set"),
         "the bit and all of them, or neither");
  const char* comm = api.default_comm(device.self());
  if (!comm || !*comm) fail("default_comm is empty", "the Comm that \"auto\" means on this device");
  if (printable(comm) != comm) fail("default_comm has control characters");
  if (const char* plugins = api.plugin_device(device.self()); plugins && !*plugins)
    fail("plugin_device is empty", "a device's name, or null for its own");
  // Check the default stream on every device; what the handle points to is up to the vendor.
  for (uint32_t d = 0; d < device.count(); ++d) {
    const CallScope calling("native_stream", 0);
    void* stream = api.native_stream(device.self(), d, 0);
    if (stream && !(bits & GANNET_ACCELERATOR_STREAMS))
      fail("native_stream has a handle, and GANNET_ACCELERATOR_STREAMS is not set", "null on a device without streams");
    if (!stream && (bits & GANNET_ACCELERATOR_STREAMS))
      fail("native_stream is null, and GANNET_ACCELERATOR_STREAMS is set",
           "the runtime's other name for its default stream where that has a null handle, as cudaStreamLegacy");
    if (stream != api.native_stream(device.self(), d, 0)) fail("native_stream changes from call to call");
  }
}

}  // namespace

std::vector<Check> accelerator_checks() {
  return {
      {"devices", "each device has a name, memory, and a type of LibTorch; it can be set and synchronized",
       "fill in device_info as the driver tells it", 60, describe_devices},
      {"bad-device", "a device that is not there is refused with a sentence", "compare with device_count in every call", 30,
       refuse_devices},
      {"capabilities", "bits and functions agree, and do not change", "gannet/sdk_accelerator.hpp fills in both", 30,
       describe_itself},
      {"copies", "a queue copies in the order given, any bytes between any two places",
       "mind odd sizes and addresses, and size 0", 60, copy_in_order},
      {"events", "an event is over when, and only when, all that the queue was given before it is done",
       "record it in the queue, after the copies", 60, order_by_events},
      {"synchronize", "synchronize waits for the device's queues, too", "wait for each queue, or for the whole device", 30,
       synchronize_all},
      {"queue-end", "queue_destroy returns when its work is over, and events may outlive their queue",
       "let events hold what they need", 30, outlive_queues},
      {"queue-threads", "queues in different threads, and events that cross them, work together", "lock what queues share", 60,
       use_queues_in_threads},
      {"pinning", "pinned memory is copied from and to as other memory is; unpinned, it can be pinned again",
       "unpin what pin was given", 30, pin_memory},
      {"leaves-nothing-in-use", "queues, events and pinned memory leave nothing behind",
       "free in queue_destroy and event_destroy", 60, leave_nothing_of_queues},
  };
}

}  // namespace gannet::kit
