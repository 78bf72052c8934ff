// A pre-norm transformer whose blocks may be regions, for the tests of activation checkpointing.
#pragma once

#include <gannet/checkpointing.h>
#include <torch/torch.h>

#include <vector>

namespace gannet::test {

enum class Recompute { kNothing, kBlocks, kGroups };  // groups of 4 blocks, and the blocks in them

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t width, int64_t heads, double dropout) : heads(heads), dropout(dropout) {
    first_norm = register_module("first_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    second_norm = register_module("second_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  at::Tensor forward(at::Tensor x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = qkv(first_norm(x)).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, is_training() ? dropout : 0.0, true);
    const at::Tensor mixed = attended.transpose(1, 2).reshape({batch, length, width});
    x = x + torch::dropout(out(mixed), dropout, is_training());
    return x + torch::dropout(down(torch::gelu(up(second_norm(x)))), dropout, is_training());
  }
  int64_t heads;
  double dropout;
  torch::nn::LayerNorm first_norm{nullptr}, second_norm{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct TransformerImpl : torch::nn::Module {
  TransformerImpl(int64_t count, int64_t width, int64_t heads, double dropout, Recompute recompute) : recompute(recompute) {
    words = register_module("words", torch::nn::Embedding(50, width));
    for (int64_t i = 0; i < count; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(width, heads, dropout)));
  }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& targets) {
    at::Tensor x = words(ids);
    if (recompute == Recompute::kGroups)
      for (size_t begin = 0; begin < blocks.size(); begin += 4)
        x = checkpointing::checkpoint([this, begin](const at::Tensor& x) { return group(x, begin); }, x);
    else
      for (Block& block : blocks) x = one(block, x);
    const at::Tensor logits = torch::matmul(x, words->weight.t());
    return torch::cross_entropy_loss(logits.view({-1, 50}).to(torch::kFloat), targets.reshape({-1}));
  }
  at::Tensor group(at::Tensor x, size_t begin) {
    for (size_t i = begin; i < std::min(begin + 4, blocks.size()); ++i) x = one(blocks[i], x);
    return x;
  }
  at::Tensor one(const Block& block, const at::Tensor& x) {
    return recompute == Recompute::kNothing ? block.ptr()->forward(x) : checkpointing::checkpoint({.name = "block"}, block, x);
  }
  Recompute recompute;
  torch::nn::Embedding words{nullptr};
  std::vector<Block> blocks;
};

inline std::shared_ptr<TransformerImpl> make_transformer(Recompute recompute, int64_t count, int64_t width, int64_t heads,
                                                         double dropout) {
  torch::manual_seed(1);
  return std::make_shared<TransformerImpl>(count, width, heads, dropout, recompute);
}

// Words and those that follow them; of micro-batch `index`.
inline std::pair<at::Tensor, at::Tensor> words_of(int64_t index, int64_t batch, int64_t length) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + index));
  const at::Tensor ids = torch::randint(50, {batch, length + 1}, generator);
  return {ids.slice(1, 0, length), ids.slice(1, 1)};
}

// The loss of a transformer of 5 blocks, a random number drawn afterwards, and the gradients of its parameters.
inline std::vector<at::Tensor> gradients_of_blocks(Recompute recompute) {
  auto model = make_transformer(recompute, 5, 32, 4, 0.1);
  const auto [ids, targets] = words_of(0, 2, 12);
  torch::manual_seed(3);
  at::Tensor loss = model->forward(ids, targets);
  loss.backward();
  std::vector<at::Tensor> all = {loss, torch::randn({3})};
  for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad());
  return all;
}

}  // namespace gannet::test
