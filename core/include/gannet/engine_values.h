/// Values that the engine's calls take and return: results of steps, receipts, options of a
/// backward, parameter groups.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/value.h>

#include <string>
#include <vector>

namespace gannet {

/// Result of a call to step(). A skipped step is never silent: `reason` explains why nothing was
/// applied.
struct StepResult {
  bool applied = false;   ///< the parameters were updated
  bool boundary = false;  ///< this call was a gradient accumulation boundary; applied is then false only for a skipped step
  std::string reason;     ///< empty when applied
  explicit operator bool() const { return applied; }
};

/// Result of swap_optimizer(): what happened to each of the optimizer's states. States are listed
/// by name, with their groups if these differ.
struct SwapReceipt {
  std::string from, to;              ///< the plugins' names
  std::vector<std::string> kept;     ///< states that both optimizers have with the same dtype and extent; their values are kept
  std::vector<std::string> filled;   ///< new states, at their initial values
  std::vector<std::string> dropped;  ///< states that the new optimizer does not have
  std::vector<std::string> notes;
  std::string to_string() const;
};

struct BackwardOptions {
  bool retain_graph = false;
  /// Keeps the graph of the gradients. `.grad` is then left for the caller to read; the step uses
  /// the engine's copy.
  bool create_graph = false;
  bool allreduce_gradients = true;  ///< false: gradients are not averaged over ranks until the caller's allreduce_gradients()
  bool scale_wrt_gas = true;        ///< false: the loss is not divided by gradient_accumulation_steps
};

/// Parameters that share hyperparameters. All groups either list them in `parameters` or select
/// them by patterns on their names. `overrides` replaces members of the config's optimizer.params
/// for these parameters.
///   {.model_parameters = {{.overrides = {{"weight_decay", 0.0}}, .match = {"*.bias"}}}}
/// With patterns, a parameter belongs to the first group that matches it. Parameters that match
/// none train in group 0, called "default", with the config's params; the program's groups are 1,
/// 2, ... A pattern that matches no parameter is Error(kArgument).
struct ParameterGroup {
  std::vector<at::Tensor> parameters = {};
  Dict overrides = {};                  ///< e.g. {{"weight_decay", 0.0}}
  std::string name = {};                ///< default: the patterns, or "group 0" ... if there are none
  std::vector<std::string> match = {};  ///< `*` any characters, `?` one, against the whole name: "*.bias", "h.?.ln*"
};

}  // namespace gannet
