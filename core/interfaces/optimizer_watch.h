// Implements "gannet": {"debug_plugins": true}: an optimizer plugin works on copies of its arrays.
// Each copy is surrounded by canaries, which are checked after every call. The results of a correct
// plugin do not change; memory and time double.
//
//   OptimizerWatch watch(plugin);
//   watch.update(args, context, [&](const gannet_update_args& copies) { ...; });   // an Error(kPluginFault) names the write
//
// Detects writes outside of an array, and changed values in arrays that the contract does not allow
// the call to write. Does not detect reads, or writes that store the value that is already there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "interfaces/optimizer.h"

namespace gannet {

// The optimizer (for its description) and its tensors.
struct WatchContext {
  const Optimizer& optimizer;
  const std::vector<gannet_tensor>& tensors;
  uint32_t world_size;
};

class OptimizerWatch {
 public:
  explicit OptimizerWatch(const plugin::Plugin& plugin) : plugin_(plugin) {}
  using Context = WatchContext;
  using Update = std::function<void(const gannet_update_args&)>;
  void update(const gannet_update_args& args, const Context& context, const Update& call) const;
  using Pieces = std::vector<gannet_update_args>;
  void update_many(const Pieces& pieces, const Context& context, const std::function<void(const Pieces&)>& call) const;
  void sums_many(const Pieces& pieces, const Context& context, double* const* sums,
                 const std::function<void(const Pieces&, double* const* sums)>& call) const;
  void evaluate(const gannet_update_args& args, const Context& context, const Update& call) const;
  void perturb(const gannet_update_args& args, const Context& context, const Update& call) const;
  void sums(const gannet_update_args& args, const Context& context, double* sums,
            const std::function<void(const gannet_update_args&, double* sums)>& call) const;
  // `function`: "begin_step" or "end_step".
  void step(const char* function, const gannet_step_args& args, const Context& context,
            const std::function<void(const gannet_step_args&)>& call) const;

 private:
  const plugin::Plugin& plugin_;
};

}  // namespace gannet
