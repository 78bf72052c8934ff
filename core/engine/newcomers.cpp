#include "engine/newcomers.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace gannet {

// A gradient that another backward or the program put into `.grad` stays there; step() reports it
// when it checks for such gradients.
void Newcomers::drop_cleared(Newcomer& one) {
  if (!one.shown.defined()) return;
  at::Tensor& grad = one.parameter.mutable_grad();
  if (grad.is_same(one.shown) || one.mark.is(grad)) {
    grad.reset();
  } else if (!grad.defined() || is_zero_gradient(grad)) {
    one.gathered.reset();
    one.is_cleared = !grad.defined();
  }
  one.shown.reset();
}

void Newcomers::begin_backward(const std::vector<std::pair<std::string, at::Tensor>>& unknown) {
  const at::NoGradGuard no_grad;
  for (Newcomer& one : all_) drop_cleared(one);
  for (const auto& [name, parameter] : unknown)
    if (std::none_of(all_.begin(), all_.end(), [&](const Newcomer& one) { return one.parameter.is_same(parameter); }))
      all_.push_back({.name = name, .parameter = parameter});
  for (Newcomer& one : all_) {
    one.aside = std::move(one.parameter.mutable_grad());
    one.parameter.mutable_grad() = at::Tensor();
    one.is_running = true;
    one.is_cleared = false;
  }
}

void Newcomers::end_backward(bool keeps_grads) {
  const at::NoGradGuard no_grad;
  for (Newcomer& one : all_) {
    if (!std::exchange(one.is_running, false)) continue;
    at::Tensor& grad = one.parameter.mutable_grad();
    if (grad.defined()) {
      const at::Tensor dense = grad.is_sparse() ? grad.detach().to_dense() : grad.detach();
      one.gathered = one.gathered.defined() ? one.gathered.add(dense) : keeps_grads ? dense.clone() : dense;
      if (!keeps_grads) grad.reset();
    }
    if (one.aside.defined()) grad = grad.defined() ? grad.detach().add(one.aside) : std::move(one.aside);
    one.aside.reset();
    if (!one.gathered.defined()) continue;
    if (!grad.defined()) grad = one.mark.of(one.parameter, one.name);
    one.shown = grad;
  }
}

Newcomers::FirstGradient Newcomers::take(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Newcomer& one) { return one.parameter.is_same(parameter); });
  if (found == all_.end()) return {};
  drop_cleared(*found);
  const FirstGradient first{found->gathered, found->is_cleared};
  all_.erase(found);
  return first;
}

void Newcomers::forget() noexcept {
  for (Newcomer& one : all_) {
    at::Tensor& grad = one.parameter.mutable_grad();
    if (one.is_running) grad = one.aside;
    if ((one.shown.defined() && grad.is_same(one.shown)) || one.mark.is(grad)) grad.reset();
  }
  all_.clear();
}

}  // namespace gannet
