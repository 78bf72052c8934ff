// A stretch of host memory: zeroed, on a page boundary, in huge pages where it is large and the kernel has them.
#pragma once

#include <cstddef>
#include <cstdint>

class Memory {
 public:
  // `turn`: 0, 1, 2 ... for buffers that are read in step. mmap gives equal page offsets to equal sizes, and buffers at
  // equal offsets fall on the same cache sets; each turn starts another odd number of pages into its mapping.
  Memory(uint64_t bytes, uint64_t turn);  // std::bad_alloc
  ~Memory();
  Memory(const Memory&) = delete;

  char* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  char* data_ = nullptr;
};
