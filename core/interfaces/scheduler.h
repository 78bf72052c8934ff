// A schedule: from a plugin. A pure function of the number of updates applied.
#pragma once

#include <cstdint>
#include <optional>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class Scheduler {
 public:
  struct Value {
    std::optional<double> lr, beta1, beta2;
  };

  Scheduler(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t group_count);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  // What update number `step` + 1 uses in `group`, whose own lr is `base_lr`.
  Value at(uint64_t step, uint32_t group, double base_lr) const;

 private:
  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_scheduler_api* api_;
  void* self_ = nullptr;
  uint32_t group_count_;
};

}  // namespace gannet
