#include "interfaces/scheduler.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/format.h"
#include "interfaces/call.h"
#include "plugin/schema.h"

namespace gannet {

Scheduler::Scheduler(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t group_count,
                     uint64_t total_steps)
    : plugin_(plugin),
      params_(std::move(params)),
      api_(interfaces::api_of<gannet_scheduler_api>(plugin)),
      group_count_(group_count),
      total_steps_(total_steps) {
  interfaces::call(plugin_, {"create"}, api_->create, host.table(), &params_.view(), group_count, &self_);
  try {
    gannet_schedule_description description{};
    description.struct_size = sizeof(description);
    interfaces::call(plugin_, {"describe"}, api_->describe, self_, &description);
    roles_ = description.roles;
    optional_roles_ = description.optional_roles;
    state_count_ = description.state_count;
    needs_metric_ = description.flags & GANNET_SCHEDULE_NEEDS_METRIC;
    constexpr uint64_t kKnown = ((uint64_t{1} << GANNET_ROLE_COUNT) - 1) & ~uint64_t{1};
    if ((roles_ | optional_roles_) & ~kKnown)
      throw plugin::fault(plugin_, formatted("{} sets roles that this Gannet does not know (bits {:#x})",
                                             interfaces::who(plugin_), (roles_ | optional_roles_) & ~kKnown));
    if (description.flags & ~uint32_t{GANNET_SCHEDULE_NEEDS_METRIC})
      throw plugin::fault(plugin_, formatted("{} has flags that this Gannet does not know (bits {:#x})", interfaces::who(plugin_),
                                             description.flags & ~uint32_t{GANNET_SCHEDULE_NEEDS_METRIC}));
    constexpr uint64_t kMostState = 4096;
    if (state_count_ > kMostState)
      throw plugin::fault(plugin_, formatted("{} declares a state of {} numbers, at most {} are possible",
                                             interfaces::who(plugin_), state_count_, kMostState));
    if ((state_count_ > 0) != (api_->advance != nullptr))
      throw plugin::fault(plugin_, formatted("{} has {}", interfaces::who(plugin_),
                                             state_count_ > 0 ? "a state, and its function advance is null"
                                                              : "a function advance, and no state that it could write"));
    if (needs_metric_ && state_count_ == 0)
      throw plugin::fault(plugin_, formatted("{} needs a metric, and has no state to keep it in", interfaces::who(plugin_)));
  } catch (...) {
    interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_);
    throw;
  }
}

Scheduler::~Scheduler() { interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_); }

std::string Scheduler::description() const {
  return formatted("roles {:#x}, where there: {:#x}\na state of {} numbers\n{}", roles_, optional_roles_, state_count_,
                   needs_metric_ ? "with a metric" : "without a metric");
}

std::vector<double> Scheduler::advanced(uint64_t step, double metric, std::vector<double> state) const {
  if (state.empty()) return state;
  gannet_schedule_advance args{};
  args.struct_size = sizeof(args);
  args.group_count = group_count_;
  args.step = step;
  args.metric = metric;
  args.state = state.data();
  args.state_count = state.size();
  args.total_steps = total_steps_;
  interfaces::call(plugin_, {"advance", step}, api_->advance, self_, static_cast<const gannet_schedule_advance*>(&args));
  return state;
}

Scheduler::Values Scheduler::at(uint64_t step, uint32_t group, const Values& base, const std::vector<double>& state) const {
  double own[GANNET_ROLE_COUNT], set[GANNET_ROLE_COUNT];
  std::fill(std::begin(set), std::end(set),
            std::numeric_limits<double>::quiet_NaN());  // NaN: not set by the plugin, unlike a rate of 0
  for (size_t role = 0; role < base.size(); ++role) own[role] = base[role].value_or(std::numeric_limits<double>::quiet_NaN());
  gannet_schedule_query query{};
  query.struct_size = sizeof(query);
  query.group = group;
  query.group_count = group_count_;
  query.base_count = GANNET_ROLE_COUNT;
  query.step = step;
  query.base = own;
  query.state = state.data();
  query.state_count = state.size();
  query.total_steps = total_steps_;
  gannet_schedule_value value{};
  value.struct_size = sizeof(value);
  value.value_count = GANNET_ROLE_COUNT;
  value.values = set;
  interfaces::call(plugin_, {"value", step}, api_->value, self_, &query, &value);

  if (value.roles & ~(roles_ | optional_roles_))
    throw plugin::fault(plugin_, formatted("{} set a value that it had not announced (roles {:#x}) for step {}",
                                           interfaces::who(plugin_), value.roles & ~(roles_ | optional_roles_), step));
  Values values;
  for (uint32_t role = 0; role < GANNET_ROLE_COUNT; ++role) {
    if ((value.roles >> role & 1) == 0) continue;
    if (!std::isfinite(set[role]))
      throw Error(ErrorCode::kPlugin,
                  formatted("{} gave a {} of {} for step {}", interfaces::who(plugin_), plugin::role_name(role), set[role], step),
                  "check the schedule's params");
    values[role] = set[role];
  }
  return values;
}

}  // namespace gannet
