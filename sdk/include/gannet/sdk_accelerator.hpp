/// An accelerator in C++: the table of gannet_accelerator_api over a class, with the exception wall of gannet/sdk.hpp.
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
#pragma once

#include <gannet/sdk.hpp>

namespace gannet::sdk {

/// A derived class may also have set_device, synchronize, native_stream and default_comm; these are a host without streams.
class AcceleratorBase : public HostServices {
 public:
  AcceleratorBase(const gannet_host& host, const Params&) : HostServices(host) {}
  void set_device(uint32_t) {}
  void synchronize(uint32_t) {}
  void* native_stream(uint32_t, int64_t) { return nullptr; }
  const char* default_comm() const { return "gloo"; }
};

namespace detail {

template <class Derived>
inline constexpr gannet_accelerator_api kAcceleratorApi = [] {
  gannet_accelerator_api api{};
  api.struct_size = sizeof(api);
  api.version = GANNET_VOLATILE_VERSION;
  api.create = [](const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(*host, Params(*params)); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.capabilities = [](void* self) -> uint64_t { return static_cast<Derived*>(self)->capabilities(); };
  api.device_count = [](void* self) -> uint32_t { return static_cast<Derived*>(self)->device_count(); };
  api.device_info = [](void* self, uint32_t device, gannet_device_info* info, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& accelerator = *static_cast<Derived*>(self);
      if (device >= accelerator.device_count())
        throw Failure(GANNET_INVALID_ARGUMENT,
                      "there is no device " + std::to_string(device) + ", only " + std::to_string(accelerator.device_count()));
      accelerator.device_info(device, *info);
    });
  };
  api.set_device = [](void* self, uint32_t device, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Derived*>(self)->set_device(device); });
  };
  api.synchronize = [](void* self, uint32_t device, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Derived*>(self)->synchronize(device); });
  };
  api.native_stream = [](void* self, uint32_t device, int64_t stream_id) -> void* {
    return static_cast<Derived*>(self)->native_stream(device, stream_id);
  };
  api.default_comm = [](void* self) -> const char* { return static_cast<Derived*>(self)->default_comm(); };
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
