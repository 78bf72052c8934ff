// A schedule from a plugin: a pure function of the number of applied updates and of the schedule's
// state, if it has one, which the host keeps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class Scheduler {
 public:
  // [gannet_param_role] the values that a schedule or a group's params set; nullopt where they set
  // none.
  using Values = std::array<std::optional<double>, GANNET_ROLE_COUNT>;

  // `total_steps`: the number of updates planned for the run; 0: unknown.
  Scheduler(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t group_count,
            uint64_t total_steps = 0);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  // The schedule's description as text, which must be the same on every rank.
  std::string description() const;
  // roles: the bits of the roles that the optimizer must have. optional_roles: the bits of those
  // that are set only if the optimizer has them.
  uint64_t roles() const { return roles_; }
  uint64_t optional_roles() const { return optional_roles_; }
  // The state before the first step; empty if the schedule has none.
  std::vector<double> first_state() const { return std::vector<double>(state_count_); }
  bool needs_metric() const { return needs_metric_; }
  // The values for update number `step` + 1 in `group`; `base` has the group's own values.
  Values at(uint64_t step, uint32_t group, const Values& base, const std::vector<double>& state) const;
  // Returns the state after it has been advanced to `step`. `metric`: NaN if there is none.
  std::vector<double> advanced(uint64_t step, double metric, std::vector<double> state) const;

 private:
  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_scheduler_api* api_;
  void* self_ = nullptr;
  uint32_t group_count_;
  uint64_t total_steps_;
  uint64_t roles_ = 0, optional_roles_ = 0, state_count_ = 0;
  bool needs_metric_ = false;
};

}  // namespace gannet
