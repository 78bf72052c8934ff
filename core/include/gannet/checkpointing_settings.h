/// DeepSpeed's calls around activation checkpointing: deepspeed.checkpointing.configure and its kin.
///
///   gannet::checkpointing::configure({.deepspeed_config = "ds_config.json", .checkpoint_in_cpu = true});
///
/// With an engine no call is needed: `gannet::initialize` puts the section `activation_checkpointing` of its config in force for
/// the regions of its own forwards. What the program configures here goes before that, for all regions of the process.
#pragma once

#include <gannet/config.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace gannet {
class ProcessGroup;
}

namespace gannet::checkpointing {

/// What is given overwrites the config's value.
struct Configure {
  Config deepspeed_config = {};  ///< its sections activation_checkpointing, gannet/activation_checkpointing and plugins; no more
  std::optional<bool> partition_activations = {};
  std::optional<bool> contiguous_checkpointing = {};
  std::optional<int64_t> num_checkpoints = {};
  std::optional<bool> checkpoint_in_cpu = {};
  std::optional<bool> synchronize = {};
  std::optional<bool> profile = {};
  /// In place of DeepSpeed's `mpu`: the ranks that share each layer, and have the same inputs of regions.
  std::shared_ptr<ProcessGroup> model_parallel_group = {};
};

/// Throws Error(kConfig) on values that do not fit one another, Error(kUnsupported) on what is not done, Error(kOrder) while a
/// region has run and waits for its backward.
void configure(const Configure& options = {});

/// Whether configure() was called and not undone.
bool is_configured();

/// Undoes configure(). Throws Error(kOrder) while a region waits for its backward. (DeepSpeed's drops buffers that evaluation
/// has filled; here no evaluation keeps any.)
void reset();

/// DeepSpeed's names for one value each: number_checkpoints, and partition_activations. What else was in force stays. Errors as
/// configure(). The number is that of the slots of contiguous_memory_optimization; without it, a warning says so.
void set_num_layers(int64_t layers);
void partition_activations_in_checkpoint(bool partition);

}  // namespace gannet::checkpointing
