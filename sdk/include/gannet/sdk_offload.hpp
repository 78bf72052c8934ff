/// Builds a gannet_offload_api table from a C++ class, using gannet/sdk.hpp's exception wall.
///
///   struct Tape : gannet::sdk::OffloadBase {
///     struct Region { std::string name; uint64_t bytes; ... };          any type with these two members
///     struct Work { ... };                                              any type
///     static constexpr std::array kParams{gannet::sdk::text("tape_path", nullptr, nullptr, "folder", GANNET_PARAM_REQUIRED)};
///     Tape(const gannet_host&, const gannet::sdk::Params&, uint32_t rank);
///     uint64_t alignment_bytes() const;                                 of buffers, offsets and sizes; the host rounds the
///                                                                       sizes of regions up to a multiple of it
///     Region* allocate(uint64_t bytes, const std::string& name);        the region reads as zeros until it is written
///     void release(Region* region);                                     waits for the region's transfers in flight
///     void* address(Region& region);                                    null if the tier is not addressable
///     Work* read(Region& region, uint64_t offset, void* buffer, uint64_t bytes);
///     Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes);
///     void wait(Work* work);                                            frees the work; throws if it failed
///   };
///   GANNET_PLUGINS("offload/tape", GANNET_TIER_STABLE, gannet::sdk::offload<Tape>("tape", "1.0", "slow but large"))
///
/// read and write may return before the transfer is done; the buffer belongs to the tier until wait
/// has returned. Several works may be in flight at once, and the host waits for them in any order.
/// If two works overlap and at least one of them is a write, the host waits for the first before it
/// starts the second. The wall has already checked alignment and range.
#pragma once

#include <gannet/sdk.hpp>

namespace gannet::sdk {

class OffloadBase : public HostServices {
 public:
  OffloadBase(const gannet_host& host, const Params&, uint32_t rank) : HostServices(host), rank_(rank) {}
  uint32_t rank() const { return rank_; }

 private:
  uint32_t rank_;
};

/// Refuses a request that is not aligned or exceeds the region.
inline void check_request(const char* what, uint64_t alignment, const std::string& region, uint64_t region_bytes, uint64_t offset,
                          const void* buffer, uint64_t bytes) {
  const auto refuse = [&](const std::string& why) {
    throw Failure(GANNET_INVALID_ARGUMENT, std::string(what) + " of " + std::to_string(bytes) + " bytes at offset " +
                                               std::to_string(offset) + " of region '" + region + "': " + why);
  };
  const std::string multiple = " is not a multiple of " + std::to_string(alignment) + ", this tier's alignment";
  if (offset > region_bytes || bytes > region_bytes - offset)
    refuse("the region ends at " + std::to_string(region_bytes) + "; ask for a range inside it");
  if (bytes > 0 && !buffer) refuse("the buffer is null");
  if (offset % alignment != 0) refuse("the offset" + multiple);
  if (bytes % alignment != 0) refuse("the size" + multiple + "; round it up, regions are as long");
  if (reinterpret_cast<uintptr_t>(buffer) % alignment != 0) refuse("the buffer's address" + multiple);
}

namespace detail {

template <class Derived>
inline constexpr gannet_offload_api kOffloadApi = [] {
  using Region = typename Derived::Region;
  using Work = typename Derived::Work;
  gannet_offload_api api{};
  api.struct_size = sizeof(api);
  api.version = GANNET_OFFLOAD_VERSION;
  api.create = [](const gannet_host* host, const gannet_params* params, uint32_t rank, void** self,
                  gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(*host, Params(*params), rank); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.alignment_bytes = [](void* self) -> uint64_t { return static_cast<Derived*>(self)->alignment_bytes(); };
  api.allocate = [](void* self, uint64_t bytes, const char* name, void** region, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *region = static_cast<Derived*>(self)->allocate(bytes, name ? name : ""); });
  };
  api.release = [](void* self, void* region) { static_cast<Derived*>(self)->release(static_cast<Region*>(region)); };
  api.address = [](void* self, void* region) -> void* {
    return static_cast<Derived*>(self)->address(*static_cast<Region*>(region));
  };
  api.read = [](void* self, void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work,
                gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& tier = *static_cast<Derived*>(self);
      auto& from = *static_cast<Region*>(region);
      check_request("read", tier.alignment_bytes(), from.name, from.bytes, offset, buffer, bytes);
      *work = tier.read(from, offset, buffer, bytes);
    });
  };
  api.write = [](void* self, void* region, uint64_t offset, const void* buffer, uint64_t bytes, void** work,
                 gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& tier = *static_cast<Derived*>(self);
      auto& to = *static_cast<Region*>(region);
      check_request("write", tier.alignment_bytes(), to.name, to.bytes, offset, buffer, bytes);
      *work = tier.write(to, offset, buffer, bytes);
    });
  };
  api.work_wait = [](void* self, void* work, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Derived*>(self)->wait(static_cast<Work*>(work)); });
  };
  return api;
}();

}  // namespace detail

template <class Derived>
constexpr gannet_descriptor offload(const char* name, const char* version, const char* doc) {
  return describe(GANNET_KIND_OFFLOAD, GANNET_TIER_STABLE, name, "", version, "", doc, std::data(Derived::kParams),
                  std::size(Derived::kParams), &detail::kOffloadApi<Derived>);
}

}  // namespace gannet::sdk
