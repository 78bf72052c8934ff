// A tensor as pieces that lie in PyTorch files: what a checkpoint is given of it, and reads when it writes it. Nothing is held in
// memory.
#pragma once

#include <memory>
#include <vector>

#include "exchange/node.h"
#include "tensor/stored_bytes.h"

namespace gannet::exchange {

// Elements [begin, begin + numel) of a stored tensor, flattened.
struct Piece {
  int64_t numel = 0;
  std::shared_ptr<const PtFile> file;  // null: zeros
  StoredTensor tensor;
  int64_t begin = 0;
};
using Pieces = std::vector<Piece>;

Pieces whole(const Node& tensor);
Pieces zeros(int64_t numel);
int64_t numel_of(const Pieces& pieces);

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

}  // namespace gannet::exchange
