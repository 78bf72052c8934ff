#include "files/pieces.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/format.h"
#include "files/io.h"

namespace gannet::files {
namespace {

using files::size_text;

constexpr int64_t kChunk = 1 << 20;  // elements converted at a time

void read_piece(const StoredPiece& piece, int64_t begin, const at::Tensor& into) {
  if (!piece.file) {
    std::memset(into.mutable_data_ptr(), 0, into.nbytes());
    return;
  }
  if (piece.tensor.dtype == into.scalar_type()) return piece.file->read(piece.tensor, piece.begin + begin, into);
  for (int64_t done = 0; done < into.numel(); done += kChunk) {
    const int64_t numel = std::min(kChunk, into.numel() - done);
    const at::Tensor there = at::empty({numel}, piece.tensor.dtype);
    piece.file->read(piece.tensor, piece.begin + begin + done, there);
    into.narrow(0, done, numel).copy_(there);
  }
}

void read_into(const StoredPieces& pieces, int64_t begin, const at::Tensor& into) {
  int64_t at = 0, done = 0;  // positions in the pieces and in `into`
  for (const StoredPiece& piece : pieces) {
    const int64_t from = std::max(begin + done, at), to = std::min(begin + into.numel(), at + piece.numel);
    if (from < to) {
      read_piece(piece, from - at, into.narrow(0, done, to - from));
      done += to - from;
    }
    at += piece.numel;
  }
  GANNET_CHECK(done == into.numel(), "pieces of a tensor end before it does");
}

class PiecesBytes : public StoredBytes {
 public:
  PiecesBytes(StoredPieces pieces, c10::ScalarType dtype) : pieces_(std::move(pieces)), dtype_(dtype) {}

  void copy_out(uint64_t begin, uint64_t bytes, char* to) const override {
    const uint64_t size = c10::elementSize(dtype_);
    // Whole elements at an aligned address are read in place; a tensor over unaligned memory would
    // be undefined behaviour.
    if (begin % size == 0 && bytes % size == 0 && reinterpret_cast<uintptr_t>(to) % size == 0) {
      read_into(pieces_, static_cast<int64_t>(begin / size), at::from_blob(to, {static_cast<int64_t>(bytes / size)}, dtype_));
      return;
    }
    const uint64_t first = begin / size, last = (begin + bytes + size - 1) / size;  // they may begin or end inside an element
    const at::Tensor around = read(pieces_, static_cast<int64_t>(first), static_cast<int64_t>(last - first), dtype_);
    std::memcpy(to, static_cast<const char*>(around.const_data_ptr()) + (begin - first * size), bytes);
  }
  void copy_in(uint64_t, uint64_t, const char*) const override { GANNET_CHECK(false, "a PyTorch file is not written to"); }

 private:
  StoredPieces pieces_;
  c10::ScalarType dtype_;
};

}  // namespace

StoredPieces whole(const Node& tensor) {
  const StoredTensor& stored = tensor.tensor();
  return {{stored.numel(), tensor.file(), stored, 0}};
}

StoredPieces zeros(int64_t numel) { return {{numel, nullptr, {}, 0}}; }

int64_t numel_of(const StoredPieces& pieces) {
  int64_t numel = 0;
  for (const StoredPiece& piece : pieces) numel += piece.numel;
  return numel;
}

std::string place_of(const StoredTensor& tensor) {
  std::string place = formatted("{}@{} {}", tensor.storage, tensor.storage_offset, c10::toString(tensor.dtype));
  for (size_t i = 0; i < tensor.sizes.size(); ++i) place += formatted(",{}:{}", tensor.sizes[i], tensor.strides[i]);
  return place;
}

void ReadAmount::add(const StoredPieces& pieces) {
  for (const StoredPiece& piece : pieces) {
    if (!piece.file) continue;
    TakenBytes& taken = files_[piece.file->path()];
    taken.file = piece.file;
    const uint64_t bytes = static_cast<uint64_t>(piece.numel) * c10::elementSize(piece.tensor.dtype);
    if (__builtin_add_overflow(taken.bytes, bytes, &taken.bytes)) taken.bytes = UINT64_MAX;
  }
}

void ReadAmount::check() const {
  for (const auto& [path, taken] : files_)
    if (taken.bytes > taken.file->most_bytes())
      throw Error(ErrorCode::kUnsupported,
                  formatted("{}: its tensors take {}, and at most {} are taken out of a file of {}", path, size_text(taken.bytes),
                            size_text(taken.file->most_bytes()), size_text(taken.file->bytes())),
                  "elements are stored once for many (expand() makes such tensors): save one copy of what is repeated");
}

void ConcatenatedTensors::add(const Node& tensor) {
  parts_.push_back(whole(tensor)[0]);
  numel_ += parts_.back().numel;
}

void ConcatenatedTensors::add_zeros(int64_t numel) {
  parts_.push_back(zeros(numel)[0]);
  numel_ += numel;
}

StoredPieces ConcatenatedTensors::cut(int64_t begin, int64_t numel) const {
  GANNET_CHECK(begin >= 0 && numel >= 0 && begin + numel <= numel_);
  StoredPieces pieces;
  int64_t at = 0;
  for (const StoredPiece& part : parts_) {
    const int64_t from = std::max(begin, at), to = std::min(begin + numel, at + part.numel);
    if (from < to) pieces.push_back({to - from, part.file, part.tensor, part.begin + (from - at)});
    at += part.numel;
  }
  return pieces;
}

std::shared_ptr<StoredBytes> stored(StoredPieces pieces, c10::ScalarType dtype) {
  return std::make_shared<PiecesBytes>(std::move(pieces), dtype);
}

at::Tensor read(const StoredPieces& pieces, int64_t begin, int64_t numel, c10::ScalarType dtype) {
  at::Tensor tensor = at::empty({numel}, dtype);
  read_into(pieces, begin, tensor);
  return tensor;
}

}  // namespace gannet::files
