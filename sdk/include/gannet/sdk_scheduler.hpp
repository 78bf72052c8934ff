/// The base of a schedule in C++, and its table of functions. Part of gannet/sdk.hpp.
#pragma once

#include <gannet/abi.h>

#include <gannet/sdk_host.hpp>
#include <gannet/sdk_optimizer.hpp>
#include <gannet/sdk_params.hpp>

namespace gannet::sdk {

/// The values of a schedule, by role: `ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, 0.1)`.
class ScheduleValues {
 public:
  ScheduleValues& set(gannet_param_role role, double value) {
    roles_ |= uint64_t{1} << role;
    values_[role] = value;
    return *this;
  }
  bool has(gannet_param_role role) const { return (roles_ >> role & 1) != 0; }
  double get(gannet_param_role role) const { return values_[role]; }
  void write_to(gannet_schedule_value& value) const {
    for (uint32_t role = 0; role < GANNET_ROLE_COUNT && role < value.value_count; ++role)
      if (has(static_cast<gannet_param_role>(role))) value.values[role] = values_[role];
    value.roles = roles_;
  }

 private:
  uint64_t roles_ = 0;
  double values_[GANNET_ROLE_COUNT] = {};
};

constexpr uint64_t bit_of(gannet_param_role role) { return uint64_t{1} << role; }

/// The role's value in the optimizer's params for the query's group; `otherwise` if the optimizer
/// has no such parameter.
inline double base_value(const gannet_schedule_query& query, gannet_param_role role, double otherwise = 0) {
  const double value = static_cast<uint32_t>(role) < query.base_count ? query.base[role] : otherwise;
  return value == value ? value : otherwise;
}

#if GANNET_TARGET_MINOR >= 1
/// Number of updates that the run is planned to apply; 0 if unknown, or if the host has ABI 2.0.
inline uint64_t total_steps(const gannet_schedule_query& query) {
  return GANNET_HAS(&query, gannet_schedule_query, total_steps) ? query.total_steps : 0;
}
#endif

/// Base of a schedule in C++. A derived class defines a constructor Derived(HostServices, Params,
/// uint32_t group_count) and `ScheduleValues value(const gannet_schedule_query&) const`, a pure
/// function. It may also redefine the functions below.
class SchedulerBase : public HostServices {
 public:
  explicit SchedulerBase(const HostServices& host) : HostServices(host) {}
  uint64_t roles() const { return bit_of(GANNET_ROLE_LEARNING_RATE); }  // roles that the optimizer must have
  uint64_t optional_roles() const { return 0; }                         // roles that are set if the optimizer has them
  uint64_t state_count() const { return 0; }                            // numbers kept across steps: query.state
  bool needs_metric() const { return false; }                           // whether it advances by scheduler->step(metric)
  void advance(const gannet_schedule_advance&) const {}                 // writes args.state
};

namespace detail {

template <class Derived>
inline constexpr gannet_scheduler_api kSchedulerApi = [] {
  gannet_scheduler_api api{};
  api.struct_size = sizeof(api);
  api.create = [](const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self,
                  gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(HostServices(*host), Params(*params), group_count); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.describe = [](void* self, gannet_schedule_description* description, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      description->roles = static_cast<const Derived*>(self)->roles();
      description->optional_roles = static_cast<const Derived*>(self)->optional_roles();
      description->state_count = static_cast<const Derived*>(self)->state_count();
      description->flags = static_cast<const Derived*>(self)->needs_metric() ? GANNET_SCHEDULE_NEEDS_METRIC : 0;
    });
  };
  api.value = [](void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<const Derived*>(self)->value(*query).write_to(*value); });
  };
  if constexpr (detail::kIsOwn<decltype(&Derived::advance), decltype(&SchedulerBase::advance)>)
    api.advance = [](void* self, const gannet_schedule_advance* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<const Derived*>(self)->advance(*args); });
    };
  return api;
}();

}  // namespace detail

}  // namespace gannet::sdk
