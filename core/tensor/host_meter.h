// What LibTorch's allocator of the host has given out and not got back: activations for the most part, because parameters, states
// and buckets of an engine are flat buffers (flat_buffer.h), which do not come from it.
//
//   HostMeter* meter = HostMeter::install();   // once; null: the program has put an allocator of its own in place
//   meter->begin();
//   ... a step ...
//   meter->peak();                             // the most above what there was at begin()
//
// It gives out what LibTorch's own would, and counts it: two atomic additions for each tensor. Never taken out again, because
// memory outlives who asked for it.
#pragma once

#include <atomic>
#include <cstdint>

namespace gannet {

class HostMeter {
 public:
  /// The process's. Thread-safe.
  static HostMeter* install();
  /// Null: not installed.
  static HostMeter* here();

  /// What is there now is not counted by peak().
  void begin();
  int64_t peak() const;
  int64_t live() const { return live_; }
  /// So many bytes of what was given out are gradients from here on, or (negative) are no longer.
  void set_aside(int64_t bytes);

  void given(int64_t bytes);
  void returned(int64_t bytes) { live_ -= bytes; }

 private:
  std::atomic<int64_t> live_ = 0, peak_ = 0, base_ = 0;
};

}  // namespace gannet
