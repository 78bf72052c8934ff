// A model with tensors from 4 elements to more than two pages of 4096: what cuts of ranges and pages go through.
#pragma once

#include <torch/torch.h>

#include <memory>

namespace gannet::test {

struct UnevenImpl : torch::nn::Module {
  UnevenImpl() {
    first = register_module("first", torch::nn::Linear(8, 37));
    middle = register_module("middle", torch::nn::Linear(37, 300));
    last = register_module("last", torch::nn::Linear(300, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto dtype = first->weight.scalar_type();
    return torch::mse_loss(last(torch::tanh(middle(torch::tanh(first(x.to(dtype)))))), y.to(dtype));
  }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
};

inline std::shared_ptr<UnevenImpl> make_uneven() {
  torch::manual_seed(7);
  return std::make_shared<UnevenImpl>();
}

}  // namespace gannet::test
