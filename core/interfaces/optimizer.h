// An optimizer plugin's object, in C++.
//
//   Optimizer adam(plugin, params, host);
//   for (const auto& spec : adam.states()) ...            // the host allocates what it asks for
//   adam.update(args);                                    // throws gannet::Error with the plugin's own sentence
#pragma once

#include <string>
#include <vector>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class Optimizer {
 public:
  struct State {
    std::string name;
    gannet_dtype dtype;  // GANNET_DTYPE_NONE: as the master
    gannet_state_extent extent;
    double initial_value;
  };

  Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  bool has(gannet_optimizer_capability capability) const;
  const std::vector<State>& states() const { return states_; }
  // The dynamic parameters: their names and the config's values, "lr", "betas[0]" ...
  const std::vector<std::string>& hyper_names() const { return params_.dynamic_names(); }
  const std::vector<double>& hyper_values() const { return params_.dynamic_values(); }
  // Throws Error(kUnsupported) naming the plugin and the three types where it does not take them.
  void require_support(gannet_dtype param, gannet_dtype grad, gannet_dtype out) const;
  uint64_t sums_per_tensor() const;

  void update(const gannet_update_args& args);
  void partials(const gannet_update_args& args, double* sums);
  void apply(const gannet_update_args& args, const double* sums);

 private:
  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_optimizer_api* api_;
  void* self_ = nullptr;
  // Copied from the plugin's list, and checked, when the object was created.
  std::vector<State> states_;
};

}  // namespace gannet
