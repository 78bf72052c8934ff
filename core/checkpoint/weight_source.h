// Where load_weights reads from: names, shapes and dtypes at once, values in groups of some tensors, so that a model is filled in
// the memory of its largest tensor, whatever the size of the file.
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
  // On the CPU, in the order of the names.
  virtual std::vector<at::Tensor> read(const std::vector<std::string>& names) const = 0;

 protected:
  std::map<std::string, Info> tensors_;
};

// A checkpoint folder of save_checkpoint (`tag`: one of its checkpoints, else the newest), or what files::open_weight_files
// reads. Throws Error(kNotFound), Error(kCorrupt), and what open_weight_files throws.
std::unique_ptr<WeightSource> open_weights(const std::string& path, const std::string& tag);

}  // namespace gannet::checkpoint
