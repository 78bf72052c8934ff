// How much memory one input takes at most, counted where it is taken.
#pragma once

#ifndef GANNET_FUZZ_REPLAY
#include <sanitizer/allocator_interface.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace gannet::fuzz {

inline size_t live_bytes, peak_bytes;

inline void count_memory() {
#ifndef GANNET_FUZZ_REPLAY
  static const bool installed [[maybe_unused]] = [] {
    __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, size_t bytes) { peak_bytes = std::max(peak_bytes, live_bytes += bytes); },
        [](const volatile void* memory) {
          const size_t bytes = memory ? __sanitizer_get_allocated_size(memory) : 0;
          live_bytes -= std::min(live_bytes, bytes);
        });
    return true;
  }();
#endif
  live_bytes = peak_bytes = 0;
}

inline void expect_at_most(size_t bytes) {
  if (peak_bytes <= bytes) return;
  std::fprintf(stderr, "%zu bytes were taken, %zu are allowed\n", peak_bytes, bytes);
  std::abort();
}

}  // namespace gannet::fuzz
