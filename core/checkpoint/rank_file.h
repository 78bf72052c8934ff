// What one rank writes: its slices laid out as a safetensors file, ready to be given block by block.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/blocks.h"
#include "checkpoint/bytes_of.h"
#include "checkpoint/checkpoint.h"

namespace gannet::checkpoint {

class RankFile {
 public:
  // Throws Error(kArgument) on slices that cannot be: undefined, strided, beyond their tensor, a name twice.
  explicit RankFile(const std::vector<Slice>& slices);

  uint64_t bytes() const { return bytes_; }
  uint64_t offset(size_t slice) const { return offsets_[slice]; }  // of its bytes in the file
  void fill(uint64_t offset, uint64_t bytes, char* into) const;    // a Fill
  // Elements that are NaN or infinite among those that fill() gave, by tensor; without those that have none.
  std::map<std::string, uint64_t> not_finite() const;

  // The name in the file of elements [begin, begin + numel): the tensor's where they are all of it, else
  // "<name>#<the place of the first of them in the whole tensor>".
  static std::string name_in_file(const std::string& name, const std::vector<int64_t>& shape, const Split& split, int64_t begin,
                                  int64_t numel);

 private:
  struct Piece {
    uint64_t begin, end;  // in the file
    BytesOf data;
    c10::ScalarType dtype;
    std::string name;                              // the tensor's
    std::unique_ptr<std::atomic<uint64_t>> wrong;  // not finite; blocks are filled on several threads
  };
  std::string header_;         // with the length before it, padded: the data begins on a page
  std::vector<Piece> pieces_;  // in the order of their bytes; none is empty
  // [slices], in the order in which they were given: bytes from the beginning of the file.
  std::vector<uint64_t> offsets_;
  uint64_t bytes_ = 0;
};

}  // namespace gannet::checkpoint
