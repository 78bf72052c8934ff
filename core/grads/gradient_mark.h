// The placeholder in `.grad` between the engine's backward and its step, while the gradient is in
// the engine's buffers: a tensor with the parameter's shape but no bytes. Clearing it, as
// zero_grad() does, can be detected; reading it throws.
//
//   GradientMark mark;
//   parameter.mutable_grad() = mark.of(parameter, "head.weight");
//   parameter.grad().norm();   // throws c10::Error; error_of() explains where the gradient is
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace gannet {

class GradientMark {
 public:
  /// Makes a new tensor at the first call, after the parameter's dtype has changed, and after
  /// the program has replaced the tensor's memory.
  const at::Tensor& of(const at::Tensor& parameter, const std::string& name);
  /// Whether `grad` has the mark's storage: it is the mark, or its detach(), which zero_grad(false)
  /// stores before it throws.
  bool is(const at::Tensor& grad) const;

 private:
  at::Tensor tensor_;
  c10::intrusive_ptr<c10::StorageImpl> storage_;  // made with tensor_; set_data() on `.grad`, the same tensor, can replace it
};

/// Whether every element is zero.
bool is_zero_gradient(const at::Tensor& gradient);

}  // namespace gannet
