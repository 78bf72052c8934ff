// Determines what regions do with their inputs. An engine's forward puts its own configuration in
// force on its thread; the program's checkpointing::configure overrides it on all threads. A region
// keeps the configuration that was in force at its forward. Its recomputation, which may run on
// another thread, puts that configuration in force again for nested regions.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/settings.h"
#include "device/device_comm.h"

namespace gannet {
class ProcessGroup;
}

namespace gannet::activation {

class InputStore;

struct Configuration {
  config::ActivationCheckpointing settings;
  std::shared_ptr<ProcessGroup> tensor_group;  // ranks that have the same inputs; null: only this rank
  std::shared_ptr<InputStore> inputs;          // null: inputs stay where they are
  // Adds a span to the engine's trace. Empty if the engine has no trace. Times are from the steady
  // clock.
  std::function<void(const std::string& name, std::chrono::steady_clock::time_point began,
                     std::chrono::steady_clock::time_point ended)>
      span;
};

/// The configuration for a region that begins now on this thread; null: nothing is configured.
std::shared_ptr<const Configuration> in_force();

/// While an object of this class lives, its configuration is in force on this thread.
class ConfigurationScope {
 public:
  explicit ConfigurationScope(std::shared_ptr<const Configuration> configuration);
  ~ConfigurationScope();
  ConfigurationScope(const ConfigurationScope&) = delete;

 private:
  std::shared_ptr<const Configuration> before_;
};

/// Throws Error(kOrder) while a region waits for its backward.
void require_none_waiting();
/// Sets the program's own configuration, for regions on all threads; null removes it. Throws
/// Error(kOrder) while a region waits for its backward.
void set_explicit(std::shared_ptr<const Configuration> configuration);
std::shared_ptr<const Configuration> explicit_configuration();

/// While an object of this class lives, it counts as one region that no backward pass has reached
/// yet.
class WaitingRegion {
 public:
  WaitingRegion();
  ~WaitingRegion();
  WaitingRegion(const WaitingRegion&) = delete;
};
int64_t regions_waiting();

/// This rank's coordinate along the tensor axis, used for seeds: from the program's own
/// configuration if that has a tensor group, otherwise from the engine created last.
uint32_t tensor_rank();
void note_tensor_rank(uint32_t rank);

}  // namespace gannet::activation
