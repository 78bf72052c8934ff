// Holds the inputs of a region from its forward to its backward passes.
//
//   Inputs inputs(tensors);  y = f(tensors...);  inputs.keep(tensors, configuration, "the region 'block'");
//   f(inputs.again("the region 'block'")...);   // the inputs are leaves, detached from the original graph
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
  /// Call it after the forward; until then the caller holds the tensors anyway. Moves the tensors
  /// as configured (null: leaves them in place). Does not move them if a surrounding region drops
  /// everything, or if all saved tensors already go to a tier. Throws Error(kUnsupported) if the
  /// forward changed one of the tensors in place.
  void keep(const std::vector<at::Tensor>& tensors, const Configuration* configuration, const std::string& region);
  /// Returns the inputs for a recomputation. Throws Error(kOrder) if one of them was changed in
  /// place after the forward.
  std::vector<at::Tensor> again(const std::string& region);

 private:
  struct Input {
    torch::autograd::SavedVariable saved;  // saved in this form so that a surrounding region drops it as well
    at::Tensor inference;                  // an inference tensor, which autograd cannot save
    bool is_defined = false, requires_grad = false;
    size_t first = 0;  // index of the first input that is the same tensor
    Version version;
  };
  std::vector<Input> inputs_;
  std::shared_ptr<InputStore::KeptInputs> moved_;  // inputs whose values are not in inputs_; null: none
};

}  // namespace gannet::activation
