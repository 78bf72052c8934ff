// A schedule: from a plugin. A pure function of the number of updates applied and, where it has one, of its state, which the host
// keeps.
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
  // [gannet_param_role]: what a schedule sets, or what a group's params say; empty where there is nothing.
  using Values = std::array<std::optional<double>, GANNET_ROLE_COUNT>;

  // `total_steps`: updates that the run is planned to apply; 0: not known.
  Scheduler(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t group_count,
            uint64_t total_steps = 0);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  // All that it said of itself: the same on every rank.
  std::string description() const;
  // Bits of the roles that the optimizer must have, and of those that are set where it has them.
  uint64_t roles() const { return roles_; }
  uint64_t optional_roles() const { return optional_roles_; }
  // Its state before the first step; empty: it has none.
  std::vector<double> first_state() const { return std::vector<double>(state_count_); }
  bool needs_metric() const { return needs_metric_; }
  // What update number `step` + 1 uses in `group`, whose own values are `base`.
  Values at(uint64_t step, uint32_t group, const Values& base, const std::vector<double>& state) const;
  // The state once `step` is reached. `metric`: NaN where there is none.
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
