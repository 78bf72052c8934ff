// Allowed arguments and results of a region.
#include <gtest/gtest.h>

#include "activation/blocks.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;

at::Tensor leaf() {
  torch::manual_seed(3);
  return torch::randn({4}, torch::requires_grad());
}

// The gradient of x through f, where `call` is checkpoint or a plain call.
template <class F>
at::Tensor gradient_of(const F& f) {
  const at::Tensor x = leaf();
  f(x).sum().backward();
  return x.grad();
}

TEST(CheckpointArguments, ContainersOfTensors) {
  const auto f = [](const std::vector<at::Tensor>& many, std::optional<at::Tensor> maybe, std::optional<at::Tensor> none,
                    const std::map<std::string, at::Tensor>& named, std::pair<at::Tensor, int> pair,
                    std::tuple<double, at::Tensor> both, const at::Tensor& undefined, std::array<at::Tensor, 1> array) {
    EXPECT_FALSE(none);
    EXPECT_FALSE(undefined.defined());
    return many[0] * many[1] * *maybe + named.at("a").exp() * pair.first * pair.second +
           std::get<1>(both).tanh() * std::get<0>(both) + array[0].sigmoid();
  };
  const auto arguments = [&](const at::Tensor& x, const auto& call) {
    return call(f, std::vector<at::Tensor>{x, x + 1}, std::optional<at::Tensor>(x.cos()), std::optional<at::Tensor>(),
                std::map<std::string, at::Tensor>{{"a", x}}, std::make_pair(x * 2, 3), std::make_tuple(0.5, x), at::Tensor(),
                std::array<at::Tensor, 1>{x});
  };
  const at::Tensor found =
      gradient_of([&](const at::Tensor& x) { return arguments(x, [](const auto&... all) { return checkpoint(all...); }); });
  const at::Tensor expected =
      gradient_of([&](const at::Tensor& x) { return arguments(x, [](const auto& f, const auto&... all) { return f(all...); }); });
  EXPECT_TRUE(at::equal(found, expected));
}

struct Graph {  // a type of the program's
  at::Tensor nodes;
  std::vector<at::Tensor> edges;
  int64_t depth = 0;
  template <class F>
  void for_each_tensor(const F& f) {
    f(nodes);
    for (at::Tensor& edge : edges) f(edge);
  }
};

TEST(CheckpointArguments, ATypeOfTheProgramOffersItsTensors) {
  const auto f = [](const Graph& graph) {
    at::Tensor y = graph.nodes;
    for (int64_t i = 0; i < graph.depth; ++i) y = (y * graph.edges[0]).tanh();
    return y;
  };
  const auto graph_of = [](const at::Tensor& x) { return Graph{x * 1, {x.exp()}, 2}; };
  EXPECT_TRUE(at::equal(gradient_of([&](const at::Tensor& x) { return checkpoint(f, graph_of(x)); }),
                        gradient_of([&](const at::Tensor& x) { return f(graph_of(x)); })));
}

TEST(CheckpointArguments, AnyResult) {
  const at::Tensor x = leaf();
  const auto [a, b, count] = checkpoint([](const at::Tensor& x) { return std::make_tuple(x.tanh(), x.argmax(), 3); }, x);
  EXPECT_EQ(count, 3);
  EXPECT_FALSE(b.requires_grad());
  const std::vector<at::Tensor> many = checkpoint([](const at::Tensor& x) { return x.exp().chunk(2); }, a);
  at::Tensor sum;
  checkpoint([&](const at::Tensor& x) { sum = sum.defined() ? sum : x.sum(); }, many[1].sin());  // no result at all
  (many[0].sum() + sum).backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(CheckpointArguments, ModulesAreCapturedOrGivenByReferenceOrAreTheFunction) {
  torch::manual_seed(1);
  torch::nn::Linear layer(4, 4);
  torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::Tanh());
  const auto expected = gradient_of([&](const at::Tensor& x) { return layers->forward(layer->forward(x).tanh()); });
  EXPECT_TRUE(at::equal(gradient_of([&](const at::Tensor& x) {
                          return checkpoint(
                              [](torch::nn::SequentialImpl& s, at::Tensor x) { return s.forward(x); }, std::ref(*layers),
                              checkpoint([](torch::nn::Linear l, at::Tensor x) { return l->forward(x).tanh(); }, layer, x));
                        }),
                        expected));
  EXPECT_TRUE(at::equal(gradient_of([&](const at::Tensor& x) {
                          return checkpoint(&torch::nn::TanhImpl::forward, layers->ptr<torch::nn::TanhImpl>(1),
                                            layers[0]->as<torch::nn::Linear>()->forward(checkpoint(layer, x).tanh()));
                        }),
                        expected));
}

TEST(CheckpointArguments, WhatTheFunctionDoesToItsOwnCopiesIsNotSeenAgain) {
  const auto f = [](std::vector<at::Tensor> many, int64_t count) {
    many.push_back(many[0] * 2);
    ++count;
    return (many[0] * many[1]).tanh() * count;
  };
  EXPECT_TRUE(at::equal(gradient_of([&](const at::Tensor& x) { return checkpoint(f, std::vector<at::Tensor>{x}, 1); }),
                        gradient_of([&](const at::Tensor& x) { return f({x}, 1); })));
}

TEST(CheckpointArguments, RecurrentLayersWithTheirStates) {
  const auto with = [](bool region) {
    torch::manual_seed(1);
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 6).num_layers(2).dropout(0.2));
    const at::Tensor x = torch::randn({5, 2, 4}, torch::requires_grad());
    std::optional<std::tuple<at::Tensor, at::Tensor>> state = std::make_tuple(torch::zeros({2, 2, 6}), torch::zeros({2, 2, 6}));
    const auto f = [&](const at::Tensor& x, std::optional<std::tuple<at::Tensor, at::Tensor>> state) {
      return lstm->forward(x, state);
    };
    for (int i = 0; i < 2; ++i) {
      auto [y, next] = region ? checkpoint(f, x, state) : f(x, state);
      state = next;
      if (i == 1) (y.sum() + std::get<0>(next).sum()).backward();
    }
    return lstm->parameters()[0].grad();
  };
  EXPECT_TRUE(at::equal(with(true), with(false)));
}

}  // namespace
}  // namespace gannet::test
