// A model of layers for the tests of pipelines: words, blocks with dropout, a norm and a head, whose
// weight may be that of the words.
#pragma once

#include <gannet/gannet.h>
#include <gannet/pipe.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gannet::test {

struct PipeBlockImpl : torch::nn::Module {
  PipeBlockImpl(int64_t width, double dropout) : dropout(dropout) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  // `keep` is a mask that every block passes on: a tensor that is neither floating nor trained.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& keep) {
    if (on_call) on_call(x);
    const at::Tensor changed = torch::dropout(down(torch::gelu(up(norm(x)))), dropout, is_training());
    return {x + changed * keep.unsqueeze(-1).to(x.dtype()), keep};
  }
  double dropout;
  std::function<void(const at::Tensor&)> on_call;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};

struct PipeNetImpl : torch::nn::Module {
  struct How {
    int64_t blocks = 4, width = 16, words = 13;
    double dropout = 0.1;
    bool is_tied = false;
    uint64_t seed = 1;
  };
  explicit PipeNetImpl(const How& how) : is_tied(how.is_tied) {
    torch::manual_seed(how.seed);
    words = register_module("words", torch::nn::Embedding(how.words, how.width));
    auto h = register_module("h", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < how.blocks; ++i)
      blocks.push_back(h->register_module(std::to_string(i), std::make_shared<PipeBlockImpl>(how.width, how.dropout)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({how.width})));
    if (!is_tied) head = register_module("head", torch::nn::Linear(how.width, how.words));
  }
  std::vector<Layer> layers() {
    const auto embed = [](torch::nn::EmbeddingImpl& words, const at::Tensor& ids) {
      return std::pair(words.forward(ids), ids > 0);
    };
    std::vector<Layer> list{layer_of("words", words, embed)};
    for (size_t i = 0; i < blocks.size(); ++i) list.push_back(layer_of("h." + std::to_string(i), blocks[i]));
    list.push_back(layer_of(
        "norm", norm, [](torch::nn::LayerNormImpl& norm, const at::Tensor& x, const at::Tensor&) { return norm.forward(x); }));
    if (is_tied)
      list.push_back(function("head", {words.ptr()}, [this](const at::Tensor& x) { return at::matmul(x, words->weight.t()); }));
    else
      list.push_back(layer_of("head", head));
    return list;
  }
  at::Tensor forward(const at::Tensor& ids) { return run_layers(layers(), ids); }

  bool is_tied;
  torch::nn::Embedding words{nullptr};
  std::vector<std::shared_ptr<PipeBlockImpl>> blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};

inline at::Tensor next_word_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat), labels.flatten());
}

// Micro-batch `number` of a run of `ranks` ranks along data, of which `rank` has its rows. Lengths
// change after every third.
inline pipe::MicroBatch words_of(int64_t number, int64_t rank, int64_t ranks) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + number));
  const at::Tensor ids = torch::randint(0, 13, {4, 5 + number / 3 % 3}, generator, torch::kLong);
  const at::Tensor mine = ids.narrow(0, rank * 4 / ranks, 4 / ranks);
  return {{mine.narrow(1, 0, ids.size(1) - 1).contiguous()}, {mine.narrow(1, 1, ids.size(1) - 1).contiguous()}};
}

}  // namespace gannet::test
