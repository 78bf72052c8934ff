#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2u << 20;

}  // namespace

Memory::Memory(uint64_t bytes, uint64_t turn) {
  const bool large = bytes >= kHugePage;
  const uint64_t shift = large ? turn % 16 * 7 * kPage : 0;
  const uint64_t unit = large ? kHugePage : kPage;
  if (bytes > UINT64_MAX - shift - unit) throw std::bad_alloc();
  mapped_ = (std::max<uint64_t>(bytes, 1) + shift + unit - 1) / unit * unit;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  if (large) madvise(mapping_, mapped_, MADV_HUGEPAGE);  // only a hint: without huge pages the memory is slower
  data_ = static_cast<char*>(mapping_) + shift;
}

Memory::~Memory() { munmap(mapping_, mapped_); }
