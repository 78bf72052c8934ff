// An optimizer plugin's object of one parameter group, in C++.
//
//   Optimizer adam(plugin, params, host);
//   adam.describe({.tensors = ...});                      // whom it is for; from here on what it needs is known
//   for (const auto& spec : adam.states()) ...            // the host allocates what it asks for
//   adam.begin_step(step); adam.update(args); adam.end_step(step);   // throw gannet::Error with the plugin's own sentence
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class OptimizerWatch;

class Optimizer {
 public:
  struct State {
    std::string name;
    gannet_dtype dtype;  // GANNET_DTYPE_NONE: as the master, fp32 for those that are no element's
    gannet_state_extent extent;
    double initial_value;
    bool operator==(const State&) const = default;
  };
  struct Sum {
    gannet_sum_scope scope;
    gannet_reduce_op op;
    uint32_t round;
    bool operator==(const Sum&) const = default;
  };
  struct Tensor {  // gannet_tensor
    std::string name;
    uint64_t id;
    std::vector<int64_t> shape;
    uint64_t numel;
  };
  struct Context {
    uint32_t group = 0, group_count = 1, rank = 0, world_size = 1, device = 0;
    std::vector<Tensor> tensors;
  };

  Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  // Before anything else; and again when parameters have joined, behind the earlier ones.
  void describe(const Context& context);
  bool has(gannet_optimizer_capability capability) const { return (capabilities_ & capability) != 0; }
  bool needs_whole_tensors() const { return has(GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR) || !has(GANNET_OPTIMIZER_ELEMENTWISE); }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Sum>& sums() const { return sums_; }
  uint64_t range_alignment() const { return range_alignment_; }
  size_t tensor_count() const { return tensors_.size(); }
  // The dynamic parameters: their names and the config's values, "lr", "betas[0]" ..., and their roles.
  const std::vector<std::string>& hyper_names() const { return params_.dynamic_names(); }
  const std::vector<double>& hyper_values() const { return params_.dynamic_values(); }
  const std::vector<uint32_t>& hyper_roles() const { return params_.dynamic_roles(); }
  // Throws Error(kUnsupported) naming the plugin and the three types where it does not take them.
  void require_support(gannet_dtype param, gannet_dtype grad, gannet_dtype out) const;

  // From here on every call works on copies of its arrays, between canaries (optimizer_watch.h). Arrays in host memory alone.
  void watch();

  void begin_step(gannet_step_args args);  // the tensors are filled in
  void end_step(gannet_step_args args);
  void sums(const gannet_update_args& args, uint32_t round, double* sums);
  void update(const gannet_update_args& args);

 private:
  void step(const char* name, int32_t (*function)(void*, const gannet_step_args*, gannet_error*), gannet_step_args& args);

  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_optimizer_api* api_;
  void* self_ = nullptr;
  std::deque<Tensor> tensors_;               // keep their addresses, which the plugin has
  std::vector<gannet_tensor> tensor_views_;  // [tensors_]
  // Copied from the plugin's description, and checked.
  uint64_t capabilities_ = 0, range_alignment_ = 0;
  std::vector<State> states_;
  std::vector<Sum> sums_;
  bool is_described_ = false;
  std::unique_ptr<OptimizerWatch> watch_;  // null: nobody watches
};

}  // namespace gannet
