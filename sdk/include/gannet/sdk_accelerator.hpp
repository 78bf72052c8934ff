/// Builds a gannet_accelerator_api table from a C++ class, using gannet/sdk.hpp's exception wall.
///
///   struct Cpu : gannet::sdk::AcceleratorBase {
///     static constexpr std::array<gannet_param_spec, 0> kParams{};
///     using AcceleratorBase::AcceleratorBase;
///     uint64_t capabilities() const;                        gannet_accelerator_capability
///     uint32_t device_count() const;
///     void device_info(uint32_t device, gannet_device_info& info) const;
///   };
///   GANNET_PLUGINS("accelerator/cpu", GANNET_TIER_STABLE,
///                  gannet::sdk::accelerator<Cpu>("cpu", GANNET_TIER_STABLE, "", "1.0", "the host's processor"))
///
/// An accelerator that has queues in addition to compute streams (guarantees: see gannet/abi.h)
/// also defines the following; the SDK then sets GANNET_ACCELERATOR_QUEUES by itself:
///   class Event {                                            movable
///     bool is_over();
///     void wait();
///     void block(void* stream);                              later work on the stream waits for the event
///   };
///   class Queue {                                            the destructor returns when the queue's work is over
///     void copy(void* to, const void* from, uint64_t bytes);
///     Event record();
///     void wait(Event& event);
///     void wait_stream(void* stream);
///     void* stream();                                        optional: its native stream (queue_stream)
///   };
///   std::unique_ptr<Queue> make_queue(uint32_t device, const char* name);
///   void pin(void* address, uint64_t bytes);
///   void unpin(void* address);
#pragma once

#include <gannet/sdk.hpp>
#include <memory>

namespace gannet::sdk {

/// A derived class may also define set_device, synchronize, native_stream, default_comm and
/// plugin_device; the defaults are for a host without streams. It may also define kPriority, its
/// priority if the config has "auto" (gannet_accelerator_priority).
class AcceleratorBase : public HostServices {
 public:
  static constexpr int32_t kPriority = GANNET_PRIORITY_UNSAID;
  AcceleratorBase(const gannet_host& host, const Params&) : HostServices(host) {}
  void set_device(uint32_t) {}
  void synchronize(uint32_t) {}
  void* native_stream(uint32_t, int64_t) { return nullptr; }
  const char* default_comm() const { return "gloo"; }
  const char* plugin_device() const { return nullptr; }  // default: its own name
};

namespace detail {

template <class Derived, class = void>
inline constexpr bool kHasQueues = false;
template <class Derived>
inline constexpr bool kHasQueues<Derived, std::void_t<typename Derived::Queue>> = true;

template <class Queue, class = void>
inline constexpr bool kHasStream = false;
template <class Queue>
inline constexpr bool kHasStream<Queue, std::void_t<decltype(std::declval<Queue&>().stream())>> = true;

template <class Derived>
void require_device(const Derived& accelerator, uint32_t device) {
  if (device >= accelerator.device_count())
    throw Failure(GANNET_INVALID_ARGUMENT,
                  "there is no device " + std::to_string(device) + ", only " + std::to_string(accelerator.device_count()));
}

template <class Derived>
constexpr void add_queues(gannet_accelerator_api& api) {
  using Queue = typename Derived::Queue;
  using Event = typename Derived::Event;
  api.queue_create = [](void* self, uint32_t device, const char* name, void** queue, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& accelerator = *static_cast<Derived*>(self);
      require_device(accelerator, device);
      *queue = accelerator.make_queue(device, name).release();
    });
  };
  api.queue_destroy = [](void*, void* queue) { delete static_cast<Queue*>(queue); };
  api.queue_copy = [](void*, void* queue, void* to, const void* from, uint64_t bytes, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Queue*>(queue)->copy(to, from, bytes); });
  };
  api.event_record = [](void*, void* queue, void** event, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *event = new Event(static_cast<Queue*>(queue)->record()); });
  };
  api.event_destroy = [](void*, void* event) { delete static_cast<Event*>(event); };
  api.event_query = [](void*, void* event, int32_t* is_over, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *is_over = static_cast<Event*>(event)->is_over(); });
  };
  api.event_wait = [](void*, void* event, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Event*>(event)->wait(); });
  };
  api.queue_wait_event = [](void*, void* queue, void* event, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Queue*>(queue)->wait(*static_cast<Event*>(event)); });
  };
  api.queue_wait_stream = [](void*, void* queue, void* stream, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Queue*>(queue)->wait_stream(stream); });
  };
  api.stream_wait_event = [](void*, void* stream, void* event, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Event*>(event)->block(stream); });
  };
  api.pin = [](void* self, void* address, uint64_t bytes, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Derived*>(self)->pin(address, bytes); });
  };
  api.unpin = [](void* self, void* address, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Derived*>(self)->unpin(address); });
  };
#if GANNET_TARGET_MINOR >= 4
  if constexpr (kHasStream<Queue>)
    api.queue_stream = [](void*, void* queue) -> void* { return static_cast<Queue*>(queue)->stream(); };
#endif
}

template <class Derived>
inline constexpr gannet_accelerator_api kAcceleratorApi = [] {
  gannet_accelerator_api api{};
  api.struct_size = sizeof(api);
  api.version = GANNET_ACCELERATOR_VERSION;
  api.create = [](const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(*host, Params(*params)); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.capabilities = [](void* self) -> uint64_t {
    return static_cast<Derived*>(self)->capabilities() | (kHasQueues<Derived> ? uint64_t{GANNET_ACCELERATOR_QUEUES} : 0);
  };
  api.device_count = [](void* self) -> uint32_t { return static_cast<Derived*>(self)->device_count(); };
  api.device_info = [](void* self, uint32_t device, gannet_device_info* info, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& accelerator = *static_cast<Derived*>(self);
      require_device(accelerator, device);
      accelerator.device_info(device, *info);
    });
  };
  api.set_device = [](void* self, uint32_t device, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      require_device(*static_cast<Derived*>(self), device);
      static_cast<Derived*>(self)->set_device(device);
    });
  };
  api.synchronize = [](void* self, uint32_t device, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      require_device(*static_cast<Derived*>(self), device);
      static_cast<Derived*>(self)->synchronize(device);
    });
  };
  api.native_stream = [](void* self, uint32_t device, int64_t stream_id) -> void* {
    return static_cast<Derived*>(self)->native_stream(device, stream_id);
  };
  api.default_comm = [](void* self) -> const char* { return static_cast<Derived*>(self)->default_comm(); };
  api.plugin_device = [](void* self) -> const char* { return static_cast<Derived*>(self)->plugin_device(); };
  api.priority = Derived::kPriority;
  if constexpr (kHasQueues<Derived>) add_queues<Derived>(api);
  return api;
}();

}  // namespace detail

/// `fingerprint`: GANNET_FINGERPRINT for the pinned tier, "" for the stable one.
template <class Derived>
constexpr gannet_descriptor accelerator(const char* name, gannet_tier tier, const char* fingerprint, const char* version,
                                        const char* doc) {
  return describe(GANNET_KIND_ACCELERATOR, tier, name, "", version, fingerprint, doc, std::data(Derived::kParams),
                  std::size(Derived::kParams), &detail::kAcceleratorApi<Derived>);
}

}  // namespace gannet::sdk
