// Counts the allocations of LibTorch's CPU allocator.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

namespace gannet::test {

class Counting : public c10::Allocator {
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

class CountedMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static Counting counting;
    before_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&counting, 200);
  }
  static void TearDownTestSuite() { c10::SetCPUAllocator(before_, 200); }
  // Above what was there, in MiB.
  static double peak_of(const std::function<void()>& work) {
    const int64_t start = Counting::live;
    Counting::peak = start;
    work();
    return static_cast<double>(Counting::peak - start) / (1 << 20);
  }
  static inline c10::Allocator* before_ = nullptr;
};

}  // namespace gannet::test
