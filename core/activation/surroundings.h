// The state that a forward depends on in addition to its inputs: random generators and autocast. It
// is captured before the forward and put in place for the recomputation. Afterwards the previous
// state is restored.
//
//   Surroundings at_forward(devices, true);  y = f(x);  at_forward.keep_what_was_drawn_from({});
//   { const SurroundingsScope there(at_forward); f(x); }
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <gannet/rng_tracker.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "activation/trace.h"

namespace gannet::activation {

/// Returns the devices of these tensors, each once.
std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors);

class Surroundings {
 public:
  /// Captures the current state of this thread, for tensors on these devices. `has_rng`: also
  /// captures the states of the default generators.
  Surroundings(const std::vector<at::Device>& devices, bool has_rng);
  /// Call it after the forward. Keeps only those default generators that were drawn from, and adds
  /// `others`.
  void keep_what_was_drawn_from(std::vector<GeneratorSnapshot> others);
  bool has_random() const { return !random_.empty() || streams_; }
  /// The current state of the same generators and devices.
  Surroundings now() const;
  void put_in_place() const;

 private:
  struct Autocast {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  Surroundings() = default;
  void add(at::Generator generator);
  void add_autocast(at::DeviceType device);

  std::vector<GeneratorSnapshot> random_;
  std::optional<checkpointing::RngTracker::States> streams_;
  c10::SmallVector<Autocast, 2> autocast_;
};

class SurroundingsScope {
 public:
  explicit SurroundingsScope(const Surroundings& wanted);
  ~SurroundingsScope();
  SurroundingsScope(const SurroundingsScope&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> alone_;  // held if there are generator states, since generators are process-wide
  Surroundings before_;
  bool caches_casts_;
};

}  // namespace gannet::activation
