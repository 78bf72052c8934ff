#include "engine/used_plugins.h"

#include <algorithm>

namespace gannet {

std::vector<const plugin::Plugin*> used_plugins(const EngineBase::Impl& impl) {
  std::vector<const plugin::Plugin*> used;
  const auto add = [&](const plugin::Plugin& plugin) {
    if (std::find(used.begin(), used.end(), &plugin) == used.end()) used.push_back(&plugin);
  };
  add(impl.accelerator->plugin());
  add(impl.comm->comm().plugin());
  add(impl.host_group->comm().plugin());
  for (const Group& group : impl.groups)
    if (group.optimizer) add(group.optimizer->plugin());
  if (const Scheduler* scheduler = impl.schedule.plugin()) add(scheduler->plugin());
  for (const auto& tier : {impl.state_tier, impl.param_tier})
    if (tier) add(tier->plugin());
  if (impl.activations.saved) add(impl.activations.saved->tier().plugin());
  return used;
}

}  // namespace gannet
