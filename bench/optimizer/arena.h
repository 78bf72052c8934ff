// Buffers placed as the engine places them: one mapping, huge pages asked for, each buffer aligned to 4 KiB with a gap between
// buffers that is a multiple of 4096 and not a power of two (so that no two streams of the pass share their cache sets).
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace gannet::bench {

class Arena {
 public:
  static constexpr uint64_t kPage = 4096, kHugePage = 2 << 20;

  explicit Arena(uint64_t bytes, uint64_t gap = 3 * kPage, bool huge = true) : bytes_(bytes + 64 * kPage + kHugePage), gap_(gap) {
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    if (huge) madvise(base_, bytes_, MADV_HUGEPAGE);
    next_ = (reinterpret_cast<uintptr_t>(base_) + kHugePage - 1) & ~(kHugePage - 1);
  }
  ~Arena() { munmap(base_, bytes_); }
  Arena(const Arena&) = delete;

  template <class T>
  T* take(uint64_t count) {
    auto* taken = reinterpret_cast<T*>(next_);
    next_ = ((next_ + count * sizeof(T) + kPage - 1) & ~(kPage - 1)) + gap_;
    return taken;
  }

 private:
  void* base_;
  uint64_t bytes_, gap_;
  uintptr_t next_;
};

}  // namespace gannet::bench
