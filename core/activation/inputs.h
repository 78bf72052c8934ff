// The inputs of a region, from its forward to its backwards.
//
//   Inputs inputs(tensors);  y = f(tensors...);  inputs.keep(tensors, configuration, "the region 'block'");
//   f(inputs.again("the region 'block'")...);   // leaves, without the graph that the tensors came with
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "activation/configuration.h"
#include "activation/input_store.h"
#include "activation/version.h"

namespace gannet::activation {

class Inputs {
 public:
  explicit Inputs(const std::vector<at::Tensor>& tensors);
  /// After the forward: until then the caller holds the tensors anyway. Moves them where the configuration (null: none) says,
  /// unless another region is around this one, which drops all of it, or all that is saved is on a tier already. Throws
  /// Error(kUnsupported) where the forward changed one.
  void keep(const std::vector<at::Tensor>& tensors, const Configuration* configuration, const std::string& region);
  /// Throws Error(kOrder) where one was changed since.
  std::vector<at::Tensor> again(const std::string& region);

 private:
  struct Input {
    torch::autograd::SavedVariable saved;  // so that a region around this one drops it, too
    at::Tensor inference;                  // one that autograd may not save
    bool is_defined = false, requires_grad = false;
    size_t first = 0;  // the first input that is the same tensor
    Version version;
  };
  std::vector<Input> inputs_;
  std::shared_ptr<InputStore::Kept> moved_;  // what is not in inputs_; null: nothing
};

}  // namespace gannet::activation
