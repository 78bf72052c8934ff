// The bytes of a tensor that has no address, for example on a drive. A tensor on LibTorch's "meta"
// device represents it where its shape and dtype are needed.
#pragma once

#include <cstdint>

namespace gannet {

class StoredBytes {
 public:
  virtual ~StoredBytes() = default;
  // Both are called by several threads concurrently, for ranges that do not overlap. They throw
  // Error(kIo) and similar errors.
  virtual void copy_out(uint64_t begin, uint64_t bytes, char* to) const = 0;
  virtual void copy_in(uint64_t begin, uint64_t bytes, const char* from) const = 0;
};

}  // namespace gannet
