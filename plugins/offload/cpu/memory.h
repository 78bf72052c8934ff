// A block of host memory: zeroed and page-aligned, with huge pages if the block is large and the
// kernel has them.
#pragma once

#include <cstddef>
#include <cstdint>

class Memory {
 public:
  // `turn` is 0, 1, 2 ... for buffers that are read together. mmap gives equal sizes equal page
  // offsets, and buffers at equal offsets fall on the same cache sets. So each turn makes the block
  // begin a different odd number of pages into its mapping.
  Memory(uint64_t bytes, uint64_t turn);  // throws std::bad_alloc
  ~Memory();
  Memory(const Memory&) = delete;

  char* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
};
