// Tensor data outside addressable memory, for example on an NVMe drive. A tensor on LibTorch's "meta"
// device carries its shape and dtype.
#pragma once

#include <cstdint>

namespace gannet {

class StoredBytes {
 public:
  virtual ~StoredBytes() = default;
  // Several threads call these functions concurrently, for ranges that do not overlap. Both throw
  // Error(kIo) and similar errors.
  virtual void copy_out(uint64_t begin, uint64_t bytes, char* to) const = 0;
  virtual void copy_in(uint64_t begin, uint64_t bytes, const char* from) const = 0;
};

}  // namespace gannet
