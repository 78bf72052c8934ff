// Schedules that break one thing each.
#include <cmath>
#include <ctime>
#include <gannet/sdk.hpp>

namespace {

using namespace gannet::sdk;

struct Flat : SchedulerBase {
  static constexpr gannet_param_spec kParams[] = {number("factor", "0.5", "of the group's own rate")};
  Flat(const HostServices& host, const Params& params, uint32_t) : SchedulerBase(host), factor_(params.number("factor")) {}
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(factor_ * base_value(query, GANNET_ROLE_LEARNING_RATE));
  }
  static ScheduleValues rate(double value) { return ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, value); }
  double factor_;
};
struct Counts : Flat {  // the number of questions
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / ++asked_);
  }
  mutable double asked_ = 0;
};
struct Overflows : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) * std::pow(1.001, static_cast<double>(query.step)));
  }
};
struct Negative : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) * (1 - static_cast<double>(query.step) / 1000));
  }
};
struct Undeclared : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const { return Flat::value(query).set(GANNET_ROLE_BETA1, 0.9); }
};
struct NeverWrites : Flat {
  using Flat::Flat;
  uint64_t roles() const { return bit_of(GANNET_ROLE_LEARNING_RATE) | bit_of(GANNET_ROLE_MOMENTUM); }
};
struct NeedsBase : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const { return rate(query.base[GANNET_ROLE_LEARNING_RATE]); }
};

struct KnownOnly : Flat {  // negative behind the end of a known length
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    const double total = static_cast<double>(total_steps(query)), base = base_value(query, GANNET_ROLE_LEARNING_RATE);
    return rate(total > 0 ? base * (1 - static_cast<double>(query.step) / (2 * total)) : base);
  }
};
struct LengthOnce : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    if (length_ == 0) length_ = 1 + static_cast<double>(total_steps(query));
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / (1 + length_ / 1000));
  }
  mutable double length_ = 0;
};
struct QuerySizeExact : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    if (query.struct_size != sizeof(query)) throw Failure(GANNET_INVALID_ARGUMENT, "another size");
    return Flat::value(query);
  }
};
struct QuerySizeIgnored : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / (query.total_steps > 0 ? 2 : 1));
  }
};
struct QueryGroupWritten : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    const_cast<volatile uint32_t&>(query.group) = query.group;
    return Flat::value(query);
  }
};
struct QueryBaseOnce : Flat {  // the base of the group that was asked about first
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    if (base_ == 0) base_ = base_value(query, GANNET_ROLE_LEARNING_RATE);
    return rate(0.5 * base_);
  }
  mutable double base_ = 0;
};
struct QueryBaseBeyond : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) * (query.base[query.base_count] > 1e300 ? 0.5 : 1));
  }
};
struct QueryBaseWritten : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    const_cast<volatile double&>(query.base[0]) = query.base[0];
    return Flat::value(query);
  }
};
struct QueryStepOnce : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    if (first_ == UINT64_MAX) first_ = query.step;
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / (1 + static_cast<double>(first_)));
  }
  mutable uint64_t first_ = UINT64_MAX;
};
struct OfRank : Flat {
  OfRank(const HostServices& host, const Params& params, uint32_t groups) : Flat(host, params, groups), rank_(host.rank()) {}
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / (rank_ == 0 ? 1 : 2));
  }
  uint32_t rank_;
};
struct OfClock : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / static_cast<double>(std::time(nullptr)));
  }
};
struct BaseOfProcess : Flat {  // the base of the process's first question
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    static const double first = base_value(query, GANNET_ROLE_LEARNING_RATE);
    return rate(0.5 * (first > 0 ? first : 1));
  }
};
struct Steps32 : Flat {
  using Flat::Flat;
  ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(base_value(query, GANNET_ROLE_LEARNING_RATE) / (1 + static_cast<double>(static_cast<uint32_t>(query.step))));
  }
};
struct Climbing : SchedulerBase {  // sound: its state counts the steps
  static constexpr gannet_param_spec kParams[] = {number("factor", "0.5", "of the group's own rate")};
  Climbing(const HostServices& host, const Params&, uint32_t) : SchedulerBase(host) {}
  uint64_t state_count() const { return 2; }
  ScheduleValues value(const gannet_schedule_query& query) const {
    return ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, base_value(query, GANNET_ROLE_LEARNING_RATE) / (1 + query.state[0]));
  }
  void advance(const gannet_schedule_advance& args) const { args.state[0] += 1 / static_cast<double>(args.step); }
};
struct OwnState : Climbing {  // what it counts itself is in no checkpoint
  using Climbing::Climbing;
  void advance(const gannet_schedule_advance& args) const { args.state[0] = ++counted_; }
  mutable double counted_ = 0;
};
struct StateOnce : Climbing {  // the state of the first question
  using Climbing::Climbing;
  ScheduleValues value(const gannet_schedule_query& query) const {
    if (!is_known_) first_ = query.state[0];
    is_known_ = true;
    return ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, base_value(query, GANNET_ROLE_LEARNING_RATE) / (1 + first_));
  }
  mutable bool is_known_ = false;
  mutable double first_ = 0;
};
struct StateBeyond : Climbing {
  using Climbing::Climbing;
  void advance(const gannet_schedule_advance& args) const {
    Climbing::advance(args);
    static_cast<volatile double*>(args.state)[args.state_count] = 1;
  }
};
struct StateWritten : Climbing {  // in a question, which only reads it
  using Climbing::Climbing;
  ScheduleValues value(const gannet_schedule_query& query) const {
    const_cast<volatile double&>(query.state[0]) = query.state[0];
    return Climbing::value(query);
  }
};
struct AdvanceStepOwn : Climbing {
  using Climbing::Climbing;
  void advance(const gannet_schedule_advance& args) const {
    if (begun_ == 0) begun_ = static_cast<double>(args.step);
    args.state[0] += 1 / (1 + static_cast<double>(args.step) - begun_);
  }
  mutable double begun_ = 0;
};
struct AdvanceWritten : Climbing {
  using Climbing::Climbing;
  void advance(const gannet_schedule_advance& args) const {
    const_cast<volatile uint64_t&>(args.step) = args.step;
    Climbing::advance(args);
  }
};
struct StateNan : Climbing {
  using Climbing::Climbing;
  void advance(const gannet_schedule_advance& args) const {
    Climbing::advance(args);
    args.state[1] = std::nan("");
  }
};
struct AdvanceLengthOnce : Climbing {
  using Climbing::Climbing;
  void advance(const gannet_schedule_advance& args) const {
    if (length_ == 0) length_ = 1 + static_cast<double>(args.total_steps);
    args.state[0] += 1 / (length_ + static_cast<double>(args.step));
  }
  mutable double length_ = 0;
};
struct LargeBeta : Flat {
  using Flat::Flat;
  uint64_t roles() const { return Flat::roles() | bit_of(GANNET_ROLE_BETA1); }
  ScheduleValues value(const gannet_schedule_query& query) const {
    return Flat::value(query).set(GANNET_ROLE_BETA1, 0.9 + 1e-3 * static_cast<double>(query.step % 200));
  }
};
struct FickleRoles : Flat {  // other roles at every question
  using Flat::Flat;
  uint64_t optional_roles() const { return asked_++ % 2 ? bit_of(GANNET_ROLE_MOMENTUM) : 0; }
  mutable uint64_t asked_ = 0;
};
// Written against the table itself.
constexpr gannet_scheduler_api kRoleWithoutValue = [] {
  gannet_scheduler_api api = gannet::sdk::detail::kSchedulerApi<Flat>;
  api.value = [](void*, const gannet_schedule_query*, gannet_schedule_value* value, gannet_error*) -> int32_t {
    value->roles = uint64_t{1} << GANNET_ROLE_LEARNING_RATE;
    return GANNET_OK;
  };
  return api;
}();
constexpr gannet_scheduler_api kFlagUnknown = [] {
  gannet_scheduler_api api = gannet::sdk::detail::kSchedulerApi<Flat>;
  api.describe = [](void* self, gannet_schedule_description* description, gannet_error* error) -> int32_t {
    const int32_t status = gannet::sdk::detail::kSchedulerApi<Flat>.describe(self, description, error);
    description->flags |= 1u << 9;
    return status;
  };
  return api;
}();
constexpr gannet_scheduler_api kManyRoles = [] {
  gannet_scheduler_api api = gannet::sdk::detail::kSchedulerApi<Flat>;
  api.value = [](void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) -> int32_t {
    for (uint32_t role = 0; role < GANNET_ROLE_COUNT + 1; ++role) static_cast<volatile double*>(value->values)[role] = 0;
    return gannet::sdk::detail::kSchedulerApi<Flat>.value(self, query, value, error);
  };
  return api;
}();
constexpr gannet_scheduler_api kOwnValues = [] {
  gannet_scheduler_api api = gannet::sdk::detail::kSchedulerApi<Flat>;
  api.value = [](void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) -> int32_t {
    static double own[GANNET_ROLE_COUNT + 1];
    value->values = own;
    return gannet::sdk::detail::kSchedulerApi<Flat>.value(self, query, value, error);
  };
  return api;
}();
constexpr gannet_descriptor with_table(const char* name, const gannet_scheduler_api* api) {
  return gannet::sdk::describe(GANNET_KIND_SCHEDULER, GANNET_TIER_STABLE, name, "", "1.0", "", "breaks one thing", Flat::kParams,
                               1, api);
}

#define SCHEDULE(type) scheduler<type>(#type, "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "scheduler/flat scheduler/counts scheduler/overflows scheduler/negative scheduler/undeclared scheduler/neverwrites "
    "scheduler/needsbase scheduler/knownonly scheduler/lengthonce scheduler/querysizeexact "
    "scheduler/querysizeignored scheduler/querygroupwritten scheduler/querybaseonce scheduler/querybasebeyond "
    "scheduler/querybasewritten scheduler/querysteponce scheduler/climbing scheduler/ownstate scheduler/stateonce "
    "scheduler/statebeyond scheduler/statewritten scheduler/advancestepown scheduler/advancewritten scheduler/statenan "
    "scheduler/manyroles scheduler/ownvalues scheduler/advancelengthonce scheduler/fickleroles scheduler/rolewithoutvalue "
    "scheduler/flagunknown scheduler/largebeta scheduler/ofrank scheduler/ofclock scheduler/baseofprocess scheduler/steps32",
    GANNET_TIER_STABLE, SCHEDULE(Flat), SCHEDULE(Counts), SCHEDULE(Overflows), SCHEDULE(Negative), SCHEDULE(Undeclared),
    SCHEDULE(NeverWrites), SCHEDULE(NeedsBase), SCHEDULE(KnownOnly), SCHEDULE(LengthOnce), SCHEDULE(QuerySizeExact),
    SCHEDULE(QuerySizeIgnored), SCHEDULE(QueryGroupWritten), SCHEDULE(QueryBaseOnce), SCHEDULE(QueryBaseBeyond),
    SCHEDULE(QueryBaseWritten), SCHEDULE(QueryStepOnce), SCHEDULE(Climbing), SCHEDULE(OwnState), SCHEDULE(StateOnce),
    SCHEDULE(StateBeyond), SCHEDULE(StateWritten), SCHEDULE(AdvanceStepOwn), SCHEDULE(AdvanceWritten), SCHEDULE(StateNan),
    with_table("ManyRoles", &kManyRoles), with_table("OwnValues", &kOwnValues), SCHEDULE(AdvanceLengthOnce),
    SCHEDULE(FickleRoles), with_table("RoleWithoutValue", &kRoleWithoutValue), with_table("FlagUnknown", &kFlagUnknown),
    SCHEDULE(LargeBeta), SCHEDULE(OfRank), SCHEDULE(OfClock), SCHEDULE(BaseOfProcess), SCHEDULE(Steps32))
