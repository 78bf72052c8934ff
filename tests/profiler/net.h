// A small tree of modules: in -> block (up -> gelu -> down) with a residual -> out -> tanh.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/module.h>

#include <memory>

namespace gannet::test {

constexpr int64_t N = 6, C = 4, F = 16;

struct FcImpl : torch::nn::Module {
  FcImpl(int64_t in, int64_t out)
      : weight(register_parameter("weight", at::randn({out, in}))), bias(register_parameter("bias", at::randn({out}))) {}
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight, bias); }
  at::Tensor weight, bias;
};

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : up(register_module("up", std::make_shared<FcImpl>(C, F))),
        down(register_module("down", std::make_shared<FcImpl>(F, C))) {}
  at::Tensor forward(const at::Tensor& x) { return down->forward(at::gelu(up->forward(x))); }
  std::shared_ptr<FcImpl> up, down;
};

struct Net : torch::nn::Module {
  Net()
      : in(register_module("in", std::make_shared<FcImpl>(C, C))),
        block(register_module("block", std::make_shared<BlockImpl>())),
        out(register_module("out", std::make_shared<FcImpl>(C, C))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor first = in->forward(x.to(in->weight.scalar_type()));
    return at::tanh(out->forward(first + block->forward(first)));
  }
  std::shared_ptr<FcImpl> in;
  std::shared_ptr<BlockImpl> block;
  std::shared_ptr<FcImpl> out;
};

}  // namespace gannet::test
