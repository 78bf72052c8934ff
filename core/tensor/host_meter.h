// Measures the memory that LibTorch's host allocator has allocated and not yet freed. This is
// mostly activations, because an engine's parameters, states and buckets are in flat buffers
// (flat_buffer.h), which do not come from that allocator.
//
//   HostMeter* meter = HostMeter::install();   // called once; null: the program has installed its own allocator
//   meter->begin();
//   ... a step ...
//   meter->peak();                             // the highest level since begin(), less the level at begin()
//
// The meter allocates like LibTorch's own allocator, and counts with two atomic additions per
// tensor. It is never uninstalled, because memory may outlive the code that allocated it.
#pragma once

#include <atomic>
#include <cstdint>

namespace gannet {

class HostMeter {
 public:
  /// Installs the process's only meter. Thread-safe.
  static HostMeter* install();
  /// The installed meter; null if there is none.
  static HostMeter* here();

  /// From now on, peak() excludes the memory allocated at this moment.
  void begin();
  int64_t peak() const;
  int64_t live() const { return live_; }
  /// Excludes `bytes` allocated bytes from the count, because they have become gradients. A negative
  /// number counts them again.
  void set_aside(int64_t bytes);

  void given(int64_t bytes);
  void returned(int64_t bytes) { live_ -= bytes; }

 private:
  std::atomic<int64_t> live_ = 0, peak_ = 0, base_ = 0;
};

}  // namespace gannet
