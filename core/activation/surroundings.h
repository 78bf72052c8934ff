// What a forward depends on beside its inputs: the states of random generators and autocast. Taken before it, put in place around
// its recomputation, and what was there before put back after it.
//
//   const Surroundings at_forward(devices, generators);
//   { const Restored there(at_forward); f(x); }
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <utility>
#include <vector>

namespace gannet::activation {

class Surroundings {
 public:
  /// As they are on this thread, for tensors on these devices. `generators`: beside the default ones; `has_rng`: without it no
  /// generator is looked at.
  Surroundings(const std::vector<at::Device>& devices, const std::vector<at::Generator>& generators, bool has_rng);
  /// The same generators and devices, as they are now.
  Surroundings now() const;
  void put_in_place() const;

 private:
  struct Random {
    at::Generator generator;
    at::Tensor state;
  };
  struct Autocast {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  Surroundings() = default;
  void add(at::Generator generator);
  void add_autocast(at::DeviceType device);

  std::vector<Random> random_;
  std::vector<Autocast> autocast_;
};

class Restored {
 public:
  explicit Restored(const Surroundings& wanted);
  ~Restored();
  Restored(const Restored&) = delete;

 private:
  Surroundings before_;
  bool caches_casts_;
};

}  // namespace gannet::activation
