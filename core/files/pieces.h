// A tensor as pieces that lie in PyTorch files: what a checkpoint is given of it, and reads when it writes it. Nothing is held in
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
struct Piece {
  int64_t numel = 0;
  // Shared: a file stays open until the last piece of it is dropped.
  std::shared_ptr<const PtFile> file;  // null: zeros
  StoredTensor tensor;
  int64_t begin = 0;
};
using Pieces = std::vector<Piece>;

Pieces whole(const Node& tensor);
Pieces zeros(int64_t numel);
int64_t numel_of(const Pieces& pieces);

// A place in a file's storages, and how it is read: tied tensors have the same.
std::string place_of(const StoredTensor& tensor);

// How much is taken out of files in all. A stored element may stand for any number of a tensor's (expand() makes such tensors),
// and storages may be shared: a file of some hundred bytes can name terabytes. At most as much is taken out of a file as may be
// read of it: twice its size, or 256 MiB where that is more.
class Amount {
 public:
  void add(const Pieces& pieces);
  void check() const;  // Error(kUnsupported) naming the file

 private:
  struct Taken {
    std::shared_ptr<const PtFile> file;
    // Summed over the pieces; UINT64_MAX once the sum overflows.
    uint64_t bytes = 0;
  };
  std::map<std::string, Taken> files_;
};

// Tensors laid end to end, as ZeRO's flat buffers are over ranks or sub-groups.
class Concatenated {
 public:
  void add(const Node& tensor);
  void add_zeros(int64_t numel);
  int64_t numel() const { return numel_; }
  // Elements [begin, begin + numel), which must be inside.
  Pieces cut(int64_t begin, int64_t numel) const;

 private:
  Pieces parts_;
  int64_t numel_ = 0;
};

// Their bytes, one behind the other, in `dtype`: converted where a piece has another one.
std::shared_ptr<StoredBytes> stored(Pieces pieces, c10::ScalarType dtype);
// The same elements, read now.
at::Tensor read(const Pieces& pieces, int64_t begin, int64_t numel, c10::ScalarType dtype);

}  // namespace gannet::files
