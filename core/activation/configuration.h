// What regions do with their inputs, as it is configured. An engine's forward puts that of its config in force on its thread; the
// program's own checkpointing::configure goes before it, everywhere. A region keeps what was in force at its forward, and its
// recomputation, which may run on another thread, puts it in force again for the regions within.
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
  std::shared_ptr<ProcessGroup> tensor_group;  // ranks that have the same inputs; null: this one alone
  std::shared_ptr<InputStore> inputs;          // null: they stay where they are
  // Into the engine's trace, where there is one; may be empty. Steady clock.
  std::function<void(const std::string& name, std::chrono::steady_clock::time_point began,
                     std::chrono::steady_clock::time_point ended)>
      span;
};

/// What a region takes that begins here and now; null: nothing is configured.
std::shared_ptr<const Configuration> in_force();

/// While it lives, on this thread.
class InForce {
 public:
  explicit InForce(std::shared_ptr<const Configuration> configuration);
  ~InForce();
  InForce(const InForce&) = delete;

 private:
  std::shared_ptr<const Configuration> before_;
};

/// Throws Error(kOrder) while a region waits for its backward.
void require_none_waiting();
/// The program's own, for regions on all threads; null: none any more. Throws Error(kOrder) while a region waits for its
/// backward.
void set_explicit(std::shared_ptr<const Configuration> configuration);
std::shared_ptr<const Configuration> explicit_configuration();

/// A region that no backward has come to.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
};
int64_t regions_waiting();

/// This rank along the tensor axis, for seeds: of the program's own configuration, else of the engine that was made last.
uint32_t tensor_rank();
void note_tensor_rank(uint32_t rank);

}  // namespace gannet::activation
