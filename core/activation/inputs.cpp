#include "activation/inputs.h"

#include <gannet/error.h>

#include <algorithm>

#include "activation/saved_tensors.h"
#include "base/format.h"

namespace gannet::activation {

Inputs::Inputs(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    Input& input = inputs_.emplace_back();
    input.first = static_cast<size_t>(
        std::find_if(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& one) { return one.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl(); }) -
        tensors.begin());
    if (!tensor.defined() || input.first != i) continue;
    input.is_defined = true;
    input.requires_grad = tensor.requires_grad();
    if (tensor.is_inference()) {
      input.inference = tensor;
      continue;
    }
    input.saved = torch::autograd::SavedVariable(tensor, /*is_output=*/false);
    // An input that a surrounding region drops is recomputed, so later changes to it do not matter.
    if (!is_dropping()) input.version = Version::of(tensor);
  }
}

void Inputs::keep(const std::vector<at::Tensor>& tensors, const Configuration* configuration, const std::string& region) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].version.has_passed())
      throw Error(
          ErrorCode::kUnsupported,
          formatted("{} changes its input tensor {} in place: there is nothing left to compute it again from", region, i + 1),
          "use the operator that makes a new tensor (relu for relu_), or give the region a clone");
  if (!configuration || !configuration->inputs || is_dropping() || is_kept_elsewhere()) return;
  std::vector<at::Tensor> own(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (inputs_[i].first == i) own[i] = tensors[i];
  moved_ = configuration->inputs->keep(own, formatted("inputs of {}", region));
  for (size_t i = 0; i < tensors.size(); ++i)
    if (moved_->is_moved(i)) inputs_[i].saved = {};
}

std::vector<at::Tensor> Inputs::again(const std::string& region) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.version.has_passed())
      throw Error(ErrorCode::kOrder,
                  formatted("input tensor {} of {} was changed in place between its forward and backward", i + 1, region),
                  "leave it as it is until backward, or give the region a clone");
    if (input.first != i)
      tensors.push_back(tensors[input.first]);
    else if (input.inference.defined() || !input.is_defined)
      tensors.push_back(input.inference);
    else if (moved_ && moved_->is_moved(i))
      tensors.push_back(moved_->values(i).requires_grad_(input.requires_grad));
    else
      tensors.push_back(input.saved.unpack().detach().requires_grad_(input.requires_grad));
  }
  if (moved_) moved_->start_those_before();
  return tensors;
}

}  // namespace gannet::activation
