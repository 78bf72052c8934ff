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

void Schedule::advance(const Values& values) {
  if (by_hand_) return;
  ++position;
  apply(values);
}

void Schedule::step() {
  const Values values = at(position + 1);
  ++position;
  apply(values);
}

void Schedule::apply() { apply(at(position)); }

Schedule::Values Schedule::at(int64_t position, const std::vector<Group>& groups) const {
  Values values;
  if (!exists()) return values;
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& value = values.emplace_back();
    if (!function_) {
      value = plugin_->at(static_cast<uint64_t>(position), static_cast<uint32_t>(g), groups[g].base);
      continue;
    }
    const double lr = function_(position);
    if (!std::isfinite(lr))
      throw Error(ErrorCode::kArgument, formatted("the schedule's learning rate at position {} is {}", position, lr),
                  "a learning rate is a finite number");
    value[GANNET_ROLE_LEARNING_RATE] = lr;
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
            "(docs/plugins.md)");
    }
  if (!has_optional)
    log_warning(formatted("{} sets parameters that {} does not have: they have no effect", scheduler, optimizer));
}

}  // namespace gannet
