// Reads files that torch.save wrote (.pt, .pth, .bin), in either of PyTorch's formats (zip or
// legacy), without running any of their code.
//
//   const PtFile file = PtFile::open("pytorch_model.bin");
//   const Object* weight = file.root().find("wte.weight");
//   at::Tensor values = file.read(weight->tensor);               // contiguous, in the tensor's own shape and dtype
//
// A pickle is a program for Python. This reader knows the few instructions that build data, and
// throws Error(kUnsupported) for any other. It builds tensors and Python's containers; an object of
// another class becomes an inert record of its class and arguments. Sizes are checked against the
// file's size before they are used; Error(kCorrupt) if they do not fit. Only the pickle and the
// requested tensor are allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "files/object.h"

namespace gannet::files {

class PtFile {
 public:
  static PtFile open(const std::string& path);  // reads the pickle, but no tensor
  const std::string& path() const;
  const Object& root() const;  // valid while this PtFile or a copy of it lives; nothing in it contains itself, and
                               // the depth is at most 500

  uint64_t bytes() const;       // size of the file
  uint64_t most_bytes() const;  // limit for one tensor or all together: twice the file's size, at least 256 MiB

  at::Tensor read(const StoredTensor& tensor) const;
  // Reads elements [begin, begin + into.numel()) of a tensor, flattened in its logical order, into
  // contiguous CPU memory of its dtype. For a contiguous tensor, only those elements are read from
  // the file. Thread-safe.
  void read(const StoredTensor& tensor, int64_t begin, const at::Tensor& into) const;

  struct State;

 private:
  explicit PtFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  // Immutable after open() and shared by copies, so concurrent reads need no lock.
  std::shared_ptr<const State> state_;
};

}  // namespace gannet::files
