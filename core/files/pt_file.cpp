#include "files/pt_file.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "files/pt_contents.h"
#include "files/strided.h"

namespace gannet::files {

struct PtFile::State {
  std::unique_ptr<Bytes> bytes;
  PtContents contents;
};

PtFile PtFile::open(const std::string& path) {
  auto state = std::make_shared<State>();
  state->bytes = open_bytes(path);
  state->contents = read_contents(*state->bytes, pickle_memory(state->bytes->size()));
  return PtFile(std::move(state));
}

const std::string& PtFile::path() const { return state_->bytes->path(); }
const Object& PtFile::root() const { return *state_->contents.pickle.root; }

uint64_t PtFile::bytes() const { return state_->bytes->size(); }
uint64_t PtFile::most_bytes() const { return pickle_memory(bytes()); }

at::Tensor PtFile::read(const StoredTensor& tensor) const {
  // One stored element may expand to any number of tensor elements.
  const uint64_t bytes = static_cast<uint64_t>(tensor.numel()) * c10::elementSize(tensor.dtype);
  if (bytes > most_bytes())
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: a tensor of shape {} takes {} of memory, more than twice the file", path(),
                          shape_text(tensor.sizes), size_text(bytes)),
                "its elements are stored once for many (expand() makes such tensors): save one copy of what is repeated");
  at::Tensor into = at::empty(tensor.sizes, tensor.dtype);
  read(tensor, 0, into);
  return into;
}

void PtFile::read(const StoredTensor& tensor, int64_t begin, const at::Tensor& into) const {
  const auto place = state_->contents.places.find(tensor.storage);
  if (place == state_->contents.places.end())
    throw Error(ErrorCode::kArgument, formatted("{} has no storage {}", path(), shown(tensor.storage)));
  if (into.scalar_type() != tensor.dtype || !into.is_cpu() || !into.is_contiguous())
    throw Error(ErrorCode::kArgument, formatted("{}: a tensor is read into contiguous CPU memory of its own dtype, {}", path(),
                                                c10::toString(tensor.dtype)));
  if (begin < 0 || into.numel() > tensor.numel() - begin)
    throw Error(ErrorCode::kArgument, formatted("{}: elements {} to {} are asked for, the tensor has {}", path(), begin,
                                                begin + into.numel(), tensor.numel()));
  if (into.numel() == 0) return;
  const Bytes& bytes = *state_->bytes;
  read_elements(tensor, begin, into,
                [&](char* to, uint64_t count, uint64_t offset) { bytes.read(to, count, place->second.offset + offset); });
}

}  // namespace gannet::files
