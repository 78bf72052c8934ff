// Counts the calling thread's calls to the C library's allocator. Include it in one file of a
// program: it replaces malloc and its relatives.
//
//   const uint64_t before = gannet::bench::allocations();
//   step();
//   gannet::bench::allocations() - before
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace gannet::bench {

inline thread_local uint64_t allocation_count = 0;
inline uint64_t allocations() { return allocation_count; }

}  // namespace gannet::bench

extern "C" {

void* malloc(size_t bytes) noexcept {
  ++gannet::bench::allocation_count;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  ++gannet::bench::allocation_count;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  ++gannet::bench::allocation_count;
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  ++gannet::bench::allocation_count;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
}
