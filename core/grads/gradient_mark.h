// What `.grad` shows from a backward of the engine's to its step, while the gradient itself lies in the engine's buffers: a
// tensor of the parameter's shape without bytes. Clearing it, as zero_grad() does, can be noticed; reading it throws.
//
//   parameter.mutable_grad() = gradient_mark(parameter, "head.weight");
//   parameter.grad().norm();   // c10::Error, which error_of() knows: the gradient is not here, and where it is
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace gannet {

at::Tensor gradient_mark(const at::Tensor& parameter, const std::string& name);

/// `grad` shows `mark`, or the detach() of it that zero_grad(false) puts in its place before it fails. Undefined ones do not.
bool is_mark(const at::Tensor& grad, const at::Tensor& mark);

/// It has no element that is not zero.
bool is_zero_gradient(const at::Tensor& gradient);

}  // namespace gannet
