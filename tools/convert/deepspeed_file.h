// A file of torch.save whose tensors are cut from a checkpoint's tensors while it is written, part
// by part: memory does not grow with the model.
//
//   DeepSpeedFile file;
//   file.pickle().begin_dict();
//   file.pickle().text("exp_avg");
//   file.tensor(c10::kFloat, {part}, {{"state/exp_avg/h.0.weight", begin, numel}, {"", 0, padding}});
//   file.pickle().end_dict();
//   file.write(from, path);
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "files/pickle_writer.h"

namespace gannet::convert {

// Elements [begin, begin + numel) of a tensor of the checkpoint or, if it has no name, `numel` times
// `value`.
struct TensorPart {
  std::string name;
  int64_t begin = 0, numel = 0;
  double value = 0;
};
using TensorParts = std::vector<TensorPart>;

class DeepSpeedFile {
 public:
  files::PickleWriter& pickle() { return pickle_; }
  void value(const Value& value);
  // Returns the number of the tensor's storage, for same_tensor().
  size_t tensor(c10::ScalarType dtype, std::vector<int64_t> shape, TensorParts parts);
  void same_tensor(size_t storage, const std::vector<int64_t>& shape);
  // Writes and syncs the file. Throws the errors of Opened::read and of files::PtWriter.
  void write(const checkpoint::Opened& from, const std::string& path);

 private:
  files::PickleWriter pickle_;
  std::vector<files::PtEntry> entries_;
  std::vector<TensorParts> parts_;  // of each entry
};

}  // namespace gannet::convert
