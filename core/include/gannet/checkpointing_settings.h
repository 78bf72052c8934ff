/// DeepSpeed's calls that control activation checkpointing: deepspeed.checkpointing.configure and
/// related ones.
///
///   gannet::checkpointing::configure({.deepspeed_config = "ds_config.json", .checkpoint_in_cpu = true});
///
/// With an engine no call is needed: `gannet::initialize` applies the section
/// `activation_checkpointing` of its config to the regions of its own forwards. Settings made here
/// take precedence, for all regions of the process.
#pragma once

#include <gannet/config.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace gannet {
class ProcessGroup;
}

namespace gannet::checkpointing {

/// Options of configure(). A value that is set overrides the config's.
struct Configure {
  Config deepspeed_config = {};  ///< reads only activation_checkpointing, gannet/activation_checkpointing and plugins
  std::optional<bool> partition_activations = {};
  std::optional<bool> contiguous_checkpointing = {};
  std::optional<int64_t> num_checkpoints = {};
  std::optional<bool> checkpoint_in_cpu = {};
  std::optional<bool> synchronize = {};
  std::optional<bool> profile = {};
  /// Replaces DeepSpeed's `mpu`: the ranks that share each layer, and get the same inputs in its
  /// regions.
  std::shared_ptr<ProcessGroup> model_parallel_group = {};
};

/// Throws Error(kConfig) on contradictory values, Error(kUnsupported) on options that are not
/// implemented, Error(kOrder) while a region that has run waits for its backward.
void configure(const Configure& options = {});

/// Whether configure() was called and not undone.
bool is_configured();

/// Undoes configure(). Throws Error(kOrder) while a region waits for its backward. (DeepSpeed's
/// reset() drops buffers that evaluation has filled; here evaluation keeps none.)
void reset();

/// DeepSpeed's single-value setters: number_checkpoints and partition_activations. Other settings
/// stay in force. They throw configure()'s errors, and Error(kArgument) if `layers` is below 1.
/// `layers` sets contiguous_memory_optimization's slots; a warning is logged if that option is off.
void set_num_layers(int64_t layers);
void partition_activations_in_checkpoint(bool partition);

}  // namespace gannet::checkpointing
