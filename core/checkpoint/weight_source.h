// The source of load_weights: names, shapes and dtypes are available immediately, and values are
// read in groups of tensors. Filling a model needs memory only for its largest tensor, regardless
// of the size of the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gannet::checkpoint {

class WeightSource {
 public:
  struct Info {
    std::vector<int64_t> shape;
    c10::ScalarType dtype;
  };
  virtual ~WeightSource() = default;
  const std::map<std::string, Info>& tensors() const { return tensors_; }
  // Returns tensors on the CPU, in the order of the names.
  virtual std::vector<at::Tensor> read(const std::vector<std::string>& names) const = 0;

 protected:
  std::map<std::string, Info> tensors_;
};

// Opens a folder written by save_checkpoint (`tag` names one of its checkpoints; "": as for
// open()), or anything that files::open_weight_files reads. Throws Error(kNotFound),
// Error(kCorrupt), and the errors of open_weight_files.
std::unique_ptr<WeightSource> open_weights(const std::string& path, const std::string& tag);

}  // namespace gannet::checkpoint
