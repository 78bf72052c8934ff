// The bytes of a tensor that lies where no pointer reaches: on a drive, say. A tensor on LibTorch's "meta" device stands for it
// where its shape and dtype are asked for.
#pragma once

#include <cstdint>

namespace gannet {

class StoredBytes {
 public:
  virtual ~StoredBytes() = default;
  // Both are called from several threads at once, for stretches that do not overlap, and throw Error(kIo) and its kin.
  virtual void copy_out(uint64_t begin, uint64_t bytes, char* to) const = 0;
  virtual void copy_in(uint64_t begin, uint64_t bytes, const char* from) const = 0;
};

}  // namespace gannet
