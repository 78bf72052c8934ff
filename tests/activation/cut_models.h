// Models that give their layers, for the tests of what a config cuts.
#pragma once

#include <gannet/layers.h>

#include "activation/blocks.h"

namespace gannet::test {

// A pre-norm transformer whose output layer is tied to its embeddings.
struct LayeredImpl : torch::nn::Module {
  LayeredImpl(int64_t count, int64_t width, int64_t heads, double dropout) {
    words = register_module("words", torch::nn::Embedding(50, width));
    for (int64_t i = 0; i < count; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(width, heads, dropout)));
  }
  std::vector<Layer> layers() {
    std::vector<Layer> list{layer_of("words", words)};
    for (size_t i = 0; i < blocks.size(); ++i) list.push_back(layer_of("block" + std::to_string(i), blocks[i]));
    list.push_back(function("head", {words.ptr()}, [this](at::Tensor x) { return torch::matmul(x, words->weight.t()); }));
    return list;
  }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& targets) {
    const at::Tensor logits = run_layers(layers(), ids);
    return torch::cross_entropy_loss(logits.view({-1, 50}).to(torch::kFloat), targets.reshape({-1}));
  }
  torch::nn::Embedding words{nullptr};
  std::vector<Block> blocks;
};

inline std::shared_ptr<LayeredImpl> make_layered(int64_t count = 5, int64_t width = 32, int64_t heads = 4, double dropout = 0.1) {
  torch::manual_seed(1);
  return std::make_shared<LayeredImpl>(count, width, heads, dropout);
}

}  // namespace gannet::test
