// The model and config of the checkpoints in data/format<N>. Both stay as they are: the files were written with them.
#pragma once

#include "engine/models.h"

namespace gannet::test {

// Buffers beside parameters: batch norm.
struct FixtureNetImpl : torch::nn::Module {
  FixtureNetImpl() {
    first = register_module("first", torch::nn::Linear(8, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    second = register_module("second", torch::nn::Linear(6, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(second(torch::relu(norm(first(x)))), y); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

inline std::shared_ptr<FixtureNetImpl> make_fixture_net(int64_t seed) {
  torch::manual_seed(seed);
  return std::make_shared<FixtureNetImpl>();
}

inline Dict fixture_config() {
  return config_with({{"gradient_accumulation_steps", 2}, {"zero_optimization", Dict{{"stage", 2}, {"reduce_bucket_size", 50}}}});
}

}  // namespace gannet::test
