// A small language model and samples whose masks are uneven, for the tests of the Trainer.
#pragma once

#include <gannet/trainer.h>
#include <torch/torch.h>

#include <vector>

namespace trainer_test {

inline constexpr int64_t kClasses = 11, kLength = 5;

struct TokensImpl : torch::nn::Module {
  TokensImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(kClasses, 12));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})));
    out = register_module("out", torch::nn::Linear(12, kClasses));
  }
  at::Tensor logits(const at::Tensor& tokens) { return out(torch::gelu(norm(embedding(tokens)))); }
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    return torch::cross_entropy_loss(logits(tokens).flatten(0, 1), targets.flatten());
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(Tokens);

inline std::shared_ptr<TokensImpl> make_model() {
  torch::manual_seed(3);
  return std::make_shared<TokensImpl>();
}

// Sample i: tokens that depend only on i; its first i % 4 labels do not count.
inline std::vector<gannet::Example> make_samples(int64_t count, int64_t begin = 0) {
  std::vector<gannet::Example> samples;
  for (int64_t i = begin; i < begin + count; ++i) {
    const at::Tensor place = torch::arange(kLength, torch::kLong);
    const at::Tensor data = (place * place + 3 * i) % kClasses;
    at::Tensor target = (2 * data + i) % kClasses;
    target.narrow(0, 0, i % 4).fill_(-100);
    samples.emplace_back(data, target);
  }
  return samples;
}

inline double accuracy_of(const gannet::EvalPrediction& p) {
  const at::Tensor counts = p.label_ids.ne(-100);
  return (p.predictions.argmax(-1).eq(p.label_ids) & counts).sum().item<double>() / counts.sum().item<double>();
}

}  // namespace trainer_test
