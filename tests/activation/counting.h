// LibTorch's memory of the host, counted.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace gannet::test {

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0 && ::posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
    const auto now = live += static_cast<int64_t>(::malloc_usable_size(memory));
    for (int64_t before = peak; now > before && !peak.compare_exchange_weak(before, now);) {
    }
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* into, const void* from, size_t bytes) const override { std::memcpy(into, from, bytes); }

  static inline std::atomic<int64_t> live = 0, peak = 0;

 private:
  static void release(void* memory) {
    if (!memory) return;
    live -= static_cast<int64_t>(::malloc_usable_size(memory));
    ::free(memory);
  }
};

// While it lives, LibTorch's tensors are counted. What they hold is freed by their own deleter, whenever that is.
class Counted {
 public:
  Counted() : before_(c10::GetCPUAllocator()) {
    static auto* const forever = new CountingAllocator;
    c10::SetCPUAllocator(forever, 200);
  }
  ~Counted() { c10::SetCPUAllocator(before_, 200); }
  Counted(const Counted&) = delete;

 private:
  c10::Allocator* before_;
};

}  // namespace gannet::test
