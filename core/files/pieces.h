// A tensor as pieces of PyTorch files, read only when a checkpoint writes it. Nothing is held in
// memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "files/node.h"
#include "tensor/stored_bytes.h"

namespace gannet::files {

// Elements [begin, begin + numel) of a stored tensor, flattened.
struct StoredPiece {
  int64_t numel = 0;
  // The file is shared: it stays open until its last piece is dropped.
  std::shared_ptr<const PtFile> file;  // null: zeros
  StoredTensor tensor;
  int64_t begin = 0;
};
using StoredPieces = std::vector<StoredPiece>;

StoredPieces whole(const Node& tensor);
StoredPieces zeros(int64_t numel);
int64_t numel_of(const StoredPieces& pieces);

// Returns a string that identifies a view of a file's storages. It is the same for tied tensors.
std::string place_of(const StoredTensor& tensor);

// Limits the number of bytes that are read from files. One stored element may expand to any
// number of a tensor's elements (expand() makes such tensors), and storages may be shared, so a
// file of a few hundred bytes can name terabytes. The limit per file is twice its size, with a
// minimum of 256 MiB.
class ReadAmount {
 public:
  void add(const StoredPieces& pieces);
  void check() const;  // throws Error(kUnsupported) naming the file

 private:
  struct TakenBytes {
    std::shared_ptr<const PtFile> file;
    // The sum over the pieces; UINT64_MAX once it overflows.
    uint64_t bytes = 0;
  };
  std::map<std::string, TakenBytes> files_;
};

// Tensors laid end to end, like ZeRO's flat buffers over ranks or sub-groups.
class ConcatenatedTensors {
 public:
  void add(const Node& tensor);
  void add_zeros(int64_t numel);
  int64_t numel() const { return numel_; }
  // Returns elements [begin, begin + numel), which must exist.
  StoredPieces cut(int64_t begin, int64_t numel) const;

 private:
  StoredPieces parts_;
  int64_t numel_ = 0;
};

// The bytes of the pieces, back to back, in `dtype`; pieces of a different dtype are converted.
std::shared_ptr<StoredBytes> stored(StoredPieces pieces, c10::ScalarType dtype);
// Reads elements [begin, begin + numel) immediately.
at::Tensor read(const StoredPieces& pieces, int64_t begin, int64_t numel, c10::ScalarType dtype);

}  // namespace gannet::files
