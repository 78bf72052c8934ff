// A file that torch.save wrote (.pt, .pth, .bin), in either of PyTorch's formats (zip; the legacy one), read without running any
// of it.
//
//   const PtFile file = PtFile::open("pytorch_model.bin");
//   const Object* weight = file.root().find("wte.weight");
//   at::Tensor values = file.read(weight->tensor);               // contiguous, in the tensor's own shape and dtype
//
// A pickle is a program for Python; this reader knows the few instructions that build data, and the few classes that PyTorch and
// DeepSpeed put into checkpoints. Anything else is Error(kUnsupported) naming the class and the file. Sizes are believed only
// after they were compared with the file's: Error(kCorrupt). Nothing is allocated beyond the pickle and the tensor that is asked
// for.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "files/object.h"

namespace gannet::files {

class PtFile {
 public:
  static PtFile open(const std::string& path);  // reads the pickle, no tensor
  const std::string& path() const;
  const Object& root() const;  // its objects live as long as this PtFile or a copy of it; nothing in it contains itself, nothing
                               // lies deeper than 500

  uint64_t bytes() const;  // of the file
  uint64_t most_bytes()
      const;  // that are taken out of it, for a tensor or for all: twice the file, or 256 MiB where that is more

  at::Tensor read(const StoredTensor& tensor) const;
  // Elements [begin, begin + into.numel()) of a tensor flattened in its logical order, into contiguous CPU memory of its dtype.
  // Reads no more than those of a contiguous one. Thread-safe.
  void read(const StoredTensor& tensor, int64_t begin, const at::Tensor& into) const;

  struct State;

 private:
  explicit PtFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  // Immutable after open() and shared by copies: concurrent reads need no lock.
  std::shared_ptr<const State> state_;
};

}  // namespace gannet::files
