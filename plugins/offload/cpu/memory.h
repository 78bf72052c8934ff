// A block of host memory: zeroed and page-aligned, with huge pages if the block is large and the
// kernel supports them.
#pragma once

#include <cstddef>
#include <cstdint>

class Memory {
 public:
  // `turn` is 0, 1, 2 ... for buffers that are read together. mmap places mappings of the same size at
  // the same page offset, and buffers at the same offset compete for the same cache sets. So a large
  // block starts 7 * (turn % 16) pages into its mapping.
  Memory(uint64_t bytes, uint64_t turn);  // throws std::bad_alloc
  ~Memory();
  Memory(const Memory&) = delete;

  char* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
};
