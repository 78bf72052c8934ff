// What `.grad` shows from a backward of the engine's to its step, while the gradient itself lies in the engine's buffers: a
// tensor of the parameter's shape without bytes. Clearing it, as zero_grad() does, can be noticed; reading it throws.
//
//   GradientMark mark;
//   parameter.mutable_grad() = mark.of(parameter, "head.weight");
//   parameter.grad().norm();   // c10::Error, which error_of() knows: the gradient is not here, and where it is
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace gannet {

class GradientMark {
 public:
  /// Made when it is first asked for, when the parameter's dtype has changed, and when the program gave it other memory.
  const at::Tensor& of(const at::Tensor& parameter, const std::string& name);
  /// `grad` shows it, or the detach() of it that zero_grad(false) puts in its place before it fails.
  bool is(const at::Tensor& grad) const;

 private:
  at::Tensor tensor_;
  c10::intrusive_ptr<c10::StorageImpl> storage_;  // as it was made: `.grad` is the tensor itself, which set_data() changes
};

/// It has no element that is not zero.
bool is_zero_gradient(const at::Tensor& gradient);

}  // namespace gannet
