// Enables LibTorch's autocast for a scope on the calling thread: operators that benefit run in 16
// bits, and those that need fp32 run in fp32.
//
//   { Autocast autocast(at::kCPU, at::kBFloat16, /*caches_casts=*/true); loss = model->forward(x, y); }
//
// The destructor restores the previous state, which may be an outer autocast of the program. When
// the outermost scope ends, the cached casts are dropped.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace gannet {

class Autocast {
 public:
  /// `caches_casts`: a parameter that several operators read is cast once, and its copy lives until the outermost scope ends.
  Autocast(at::DeviceType device, at::ScalarType dtype, bool caches_casts);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const at::DeviceType device_;
  const bool was_enabled_, cached_casts_;
  const at::ScalarType dtype_before_;
};

}  // namespace gannet
