/// What an engine takes and gives: results of steps, receipts, options of a backward, parameter groups.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/value.h>

#include <string>
#include <vector>

namespace gannet {

/// What a call of step() did. A skipped step is never silent: `reason` says why nothing was applied.
struct StepResult {
  bool applied = false;   ///< the parameters were updated
  bool boundary = false;  ///< this call was a gradient accumulation boundary; applied is then false only for a skipped step
  std::string reason;     ///< empty when applied
  explicit operator bool() const { return applied; }
};

/// What became of the optimizer's states in swap_optimizer(): names, with their groups where these differ.
struct SwapReceipt {
  std::string from, to;              ///< the plugins' names
  std::vector<std::string> kept;     ///< both have it in the same dtype and extent: its values continue
  std::vector<std::string> filled;   ///< new, at its initial value
  std::vector<std::string> dropped;  ///< the new optimizer does not have it
  std::vector<std::string> notes;
  std::string to_string() const;
};

struct BackwardOptions {
  bool retain_graph = false;
  /// Keep the graph of the gradients: `.grad` is left to the caller too, to read; the step uses the engine's copy.
  bool create_graph = false;
  bool allreduce_gradients = true;  ///< false: ranks are not averaged until the caller's allreduce_gradients()
  bool scale_wrt_gas = true;        ///< false: the loss is not divided by gradient_accumulation_steps
};

/// Parameters that share hyperparameters: `parameters` lists them, or patterns on their names choose them, for all groups alike.
/// `overrides` replaces members of the config's optimizer.params for them.
///   {.model_parameters = {{.overrides = {{"weight_decay", 0.0}}, .match = {"*.bias"}}}}
/// By patterns, the first group that matches has a parameter, and those that none matches train in a group 0 called "default",
/// with the config's params; the given groups are 1, 2, ... A pattern without a parameter is Error(kArgument).
struct ParameterGroup {
  std::vector<at::Tensor> parameters = {};
  Dict overrides = {};                  ///< e.g. {{"weight_decay", 0.0}}
  std::string name = {};                ///< default: the patterns, else "group 0" ...
  std::vector<std::string> match = {};  ///< `*` any characters, `?` one, against the whole name: "*.bias", "h.?.ln*"
};

}  // namespace gannet
