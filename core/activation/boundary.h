// The begin and the end of a region's forward, of its recomputation: where "synchronize_checkpoint_boundary" waits for the
// device, and "profile" takes the time.
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
  /// `configuration` may be null, and outlives this. `what`: a literal.
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
