// Schedules that break one thing each.
#include <cmath>
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

#define SCHEDULE(type) scheduler<type>(#type, "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "scheduler/flat scheduler/counts scheduler/overflows scheduler/negative scheduler/undeclared scheduler/neverwrites "
    "scheduler/needsbase",
    GANNET_TIER_STABLE, SCHEDULE(Flat), SCHEDULE(Counts), SCHEDULE(Overflows), SCHEDULE(Negative), SCHEDULE(Undeclared),
    SCHEDULE(NeverWrites), SCHEDULE(NeedsBase))
