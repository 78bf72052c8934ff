// Small models and configs that the engine's tests share.
#pragma once

#include <gannet/gannet.h>
#include <torch/torch.h>

namespace gannet::test {

// Two layers and a regression loss: forward(x, y) -> mean squared error.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width = 16) {
    first = register_module("first", torch::nn::Linear(8, width));
    second = register_module("second", torch::nn::Linear(width, 4));
  }
  at::Tensor predict(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    return torch::mse_loss(predict(x.to(first->weight.dtype())).to(torch::kFloat), y.to(torch::kFloat));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

inline std::shared_ptr<NetImpl> make_net(int64_t seed = 1, int64_t width = 16) {
  torch::manual_seed(seed);
  return std::make_shared<NetImpl>(width);
}

// Sample `index` of an endless regression problem.
inline std::pair<at::Tensor, at::Tensor> make_batch(int64_t index, int64_t size) {
  std::vector<at::Tensor> xs, ys;
  for (int64_t i = 0; i < size; ++i) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(1000 + index * size + i));
    at::Tensor x = torch::randn({8}, generator);
    xs.push_back(x);
    ys.push_back(torch::stack({x.sum(), x.prod(), x[0] - x[1], x[2].abs()}));
  }
  return {torch::stack(xs), torch::stack(ys)};
}

inline Dict adamw(double lr = 1e-2, double weight_decay = 0.1) {
  return Dict{{"type", "AdamW"}, {"params", Dict{{"lr", lr}, {"weight_decay", weight_decay}}}};
}

// A config with these members beside a micro-batch of 4 and AdamW.
inline Dict config_with(std::initializer_list<Dict::Entry> members) {
  Dict config{{"train_micro_batch_size_per_gpu", 4}, {"optimizer", adamw()}, {"accelerator", Dict{{"type", "cpu"}}}};
  for (const auto& [key, value] : members) config[key] = value;
  return config;
}

inline at::Tensor flat_parameters(torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (auto& parameter : module.parameters()) parts.push_back(parameter.detach().to(torch::kDouble).flatten().clone());
  return torch::cat(parts);
}

}  // namespace gannet::test
