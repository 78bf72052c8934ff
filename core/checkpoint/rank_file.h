// The file of one rank: its slices laid out as safetensors, produced block by block.
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
  // Throws Error(kArgument) for invalid slices: undefined, strided, outside their tensor, of a dtype that
  // the format lacks, or with a duplicate name; Error(kUnsupported) if the header is too large.
  explicit RankFile(const std::vector<Slice>& slices);

  uint64_t bytes() const { return bytes_; }
  uint64_t offset(size_t slice) const { return offsets_[slice]; }  // offset of the slice's bytes in the file
  void fill(uint64_t offset, uint64_t bytes, char* into) const;    // implements BlockFiller
  // The number of NaN or infinite elements in the data produced by fill(), by tensor; omits tensors
  // without any.
  std::map<std::string, uint64_t> not_finite() const;

  // The name in the file for elements [begin, begin + numel): the tensor's name if they are the
  // whole tensor, otherwise "<name>#<index of the first of them in the whole tensor>".
  static std::string name_in_file(const std::string& name, const std::vector<int64_t>& shape, const Split& split, int64_t begin,
                                  int64_t numel);

 private:
  struct TensorPiece {
    uint64_t begin, end;  // in the file
    BytesOf data;
    c10::ScalarType dtype;
    std::string name;                              // name of the tensor
    std::unique_ptr<std::atomic<uint64_t>> wrong;  // number of non-finite elements; several threads fill blocks
  };
  std::string header_;               // begins with its length, and is padded so that the data begins on a page
  std::vector<TensorPiece> pieces_;  // by offset; none is empty
  // [slices] The byte offset of each slice in the file, in the given order.
  std::vector<uint64_t> offsets_;
  uint64_t bytes_ = 0;
};

}  // namespace gannet::checkpoint
