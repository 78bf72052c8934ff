// Measures the memory that LibTorch's host allocator has allocated and not freed. This is mostly
// activations, because an engine's parameters, states and buckets are flat buffers (flat_buffer.h),
// which do not come from it.
//
//   HostMeter* meter = HostMeter::install();   // once; null: the program has installed its own allocator
//   meter->begin();
//   ... a step ...
//   meter->peak();                             // the most above the level at begin()
//
// It allocates like LibTorch's own allocator, and counts with two atomic additions per tensor. It
// is never uninstalled, because memory may outlive the code that allocated it.
#pragma once

#include <atomic>
#include <cstdint>

namespace gannet {

class HostMeter {
 public:
  /// Installs the meter of the process. Thread-safe.
  static HostMeter* install();
  /// Null: not installed.
  static HostMeter* here();

  /// Excludes memory that is allocated now from peak().
  void begin();
  int64_t peak() const;
  int64_t live() const { return live_; }
  /// Excludes `bytes` allocated bytes from the count, because they are gradients now; negative:
  /// counts them again.
  void set_aside(int64_t bytes);

  void given(int64_t bytes);
  void returned(int64_t bytes) { live_ -= bytes; }

 private:
  std::atomic<int64_t> live_ = 0, peak_ = 0, base_ = 0;
};

}  // namespace gannet
