// What a forward depends on beside its inputs: the states of random generators and autocast. Taken before it, put in place around
// its recomputation, and what was there before put back after it.
//
//   Surroundings at_forward(devices, true);  y = f(x);  at_forward.keep_what_was_drawn_from({});
//   { const Restored there(at_forward); f(x); }
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

/// Where tensors are; each device once.
std::vector<at::Device> devices_of(const std::vector<at::Tensor>& tensors);

class Surroundings {
 public:
  /// As they are on this thread, for tensors on these devices. `has_rng`: with the default generators' states.
  Surroundings(const std::vector<at::Device>& devices, bool has_rng);
  /// After the forward: of the default generators those that were drawn from stay, and these others come to them.
  void keep_what_was_drawn_from(std::vector<DrawnFrom> others);
  bool has_random() const { return !random_.empty() || streams_; }
  /// The same generators and devices, as they are now.
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

  std::vector<DrawnFrom> random_;
  std::optional<checkpointing::RngTracker::States> streams_;
  c10::SmallVector<Autocast, 2> autocast_;
};

class Restored {
 public:
  explicit Restored(const Surroundings& wanted);
  ~Restored();
  Restored(const Restored&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> alone_;  // where there are states of generators: these are the process's
  Surroundings before_;
  bool caches_casts_;
};

}  // namespace gannet::activation
