// Marks the beginning and the end of a region's forward and of its recomputation.
// "synchronize_checkpoint_boundary" makes both points wait for the device, and "profile" measures
// the time between them.
//
//   { const Boundary boundary(configuration, devices, "forward", "the region 'block'");  f(x); }
//   // the region 'block': forward 1.27 ms
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <string>
#include <vector>

#include "activation/configuration.h"

namespace gannet::activation {

class Boundary {
 public:
  /// `configuration`, which may be null, and `devices` must outlive this object. `what` is a string literal.
  Boundary(const Configuration* configuration, const std::vector<c10::Device>& devices, const char* what, std::string region);
  ~Boundary();
  Boundary(const Boundary&) = delete;

 private:
  void wait() const;

  const Configuration* const configuration_;
  const std::vector<c10::Device>& devices_;
  const char* const what_;
  const std::string region_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace gannet::activation
