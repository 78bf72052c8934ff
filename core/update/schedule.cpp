#include "update/schedule.h"

#include <gannet/error.h>
#include <gannet/log.h>

#include <cmath>

#include "base/format.h"
#include "plugin/schema.h"

namespace gannet {

void Schedule::use(Function function, bool by_hand) {
  function_ = std::move(function);
  by_hand_ = by_hand;
}

void Schedule::use(std::unique_ptr<Scheduler> plugin) {
  plugin_ = std::move(plugin);
  state = plugin_->first_state();
  by_hand_ = by_hand_ || plugin_->needs_metric();
}

Schedule::NextValues Schedule::after(double metric) const {
  NextValues next;
  if (plugin_) next.state = plugin_->advanced(static_cast<uint64_t>(position) + 1, metric, state);
  next.values = at(position + 1, groups_, next.state);
  return next;
}

void Schedule::advance(NextValues next) {
  if (by_hand_) return;
  ++position;
  state = std::move(next.state);
  apply(next.values);
}

void Schedule::step(std::optional<double> metric) {
  const bool needs_metric = plugin_ && plugin_->needs_metric();
  if (needs_metric && (!metric || !std::isfinite(*metric)))
    throw Error(ErrorCode::kArgument,
                formatted("scheduler '{}' follows a metric, and step() was called {}", plugin_->plugin().name(),
                          metric ? formatted("with {}", *metric) : "without one"),
                "call scheduler->step(metric) with the same finite number on every rank: engine->mean(loss)");
  if (!needs_metric && metric)
    throw Error(ErrorCode::kArgument, "step(metric) was called on a schedule that follows no metric", "call step() without it");
  NextValues next = after(metric.value_or(kNoMetric));
  if (needs_metric) follow(at(position, groups_, state), next.values);
  ++position;
  state = std::move(next.state);
  last_metric = metric.value_or(0);
  if (!needs_metric) apply(next.values);
}

// A schedule that follows a metric multiplies the current rates, as torch's schedulers do, because
// the program may have set a rate, or resumed with different rates in the config.
void Schedule::follow(const Values& before, const Values& after) {
  for (size_t g = 0; g < after.size(); ++g)
    for (uint32_t role = 0; role < GANNET_ROLE_COUNT; ++role) {
      double* const current = groups_[g].find(static_cast<gannet_param_role>(role));
      const auto &was = before[g][role], &is = after[g][role];
      if (!current || !was || !is || *was == *is) continue;
      *current = *current == *was || *was == 0 ? *is : *current * (*is / *was);
    }
}

void Schedule::jump(int64_t to) {
  if (!state.empty())
    throw Error(ErrorCode::kUnsupported,
                formatted("step_to({}) was called, and scheduler '{}' depends on what came before, not on its position alone", to,
                          plugin_->plugin().name()),
                "advance it with step(), or resume from a checkpoint");
  position = to;
  apply();
}

void Schedule::apply() { apply(at(position, groups_, state)); }

Schedule::Values Schedule::at(int64_t position, const std::vector<Group>& groups, const std::vector<double>& state) const {
  Values values;
  if (!exists()) return values;
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& value = values.emplace_back();
    if (function_)
      value[GANNET_ROLE_LEARNING_RATE] = function_(position);
    else
      value = plugin_->at(static_cast<uint64_t>(position), static_cast<uint32_t>(g), groups[g].base, state);
    // A negative rate would ascend instead of descend. The usual cause is a linear schedule
    // that continued past its end.
    if (const auto& lr = value[GANNET_ROLE_LEARNING_RATE]; lr && !(std::isfinite(*lr) && *lr >= 0))
      throw Error(ErrorCode::kArgument,
                  formatted("the {}learning rate at position {} is {}",
                            function_ ? "schedule's " : formatted("{} scheduler's ", plugin_->plugin().name()), position, *lr),
                  "a learning rate is a finite number from 0 on");
  }
  return values;
}

void Schedule::apply(const Values& values) {
  for (size_t g = 0; g < values.size(); ++g)
    for (uint32_t role = 0; role < GANNET_ROLE_COUNT; ++role)
      if (double* current = groups_[g].find(static_cast<gannet_param_role>(role)); current && values[g][role])
        *current = *values[g][role];
}

void Schedule::check(const std::vector<Group>& groups, const std::string& scheduler, const std::string& optimizer) const {
  const uint64_t required = plugin_ ? plugin_->roles() : uint64_t{1} << GANNET_ROLE_LEARNING_RATE;
  const uint64_t optional = plugin_ ? plugin_->optional_roles() : 0;
  bool has_optional = optional == 0;
  for (const Group& group : groups)
    for (uint32_t role = 0; role < GANNET_ROLE_COUNT; ++role) {
      const bool is_there = group.find(static_cast<gannet_param_role>(role)) != nullptr;
      has_optional = has_optional || (is_there && (optional >> role & 1));
      if (!is_there && (required >> role & 1))
        throw Error(
            ErrorCode::kConfig,
            formatted("{} sets the {}, and {} has no parameter in that role", scheduler, plugin::role_name(role), optimizer),
            "choose another scheduler or optimizer; an optimizer's author gives roles to its parameters "
            "(docs/plugin_authors.md)");
    }
  if (!has_optional)
    log_warning(formatted("{} sets parameters that {} does not have: they have no effect", scheduler, optimizer));
}

}  // namespace gannet
