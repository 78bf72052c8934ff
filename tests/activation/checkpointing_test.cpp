// Regions against the plain call: gradients, random numbers, statistics, and the ways in which a program may run backward.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <thread>

#include "activation/blocks.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;

struct Outcome {
  std::vector<at::Tensor> gradients;
  at::Tensor loss, generator;
};

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

Outcome run(Recompute recompute, const std::function<void(TransformerImpl&, const at::Tensor&)>& backward) {
  auto model = make_transformer(recompute, 6, 32, 4, 0.1);
  torch::manual_seed(7);
  const auto [ids, targets] = words_of(0, 2, 12);
  Outcome outcome;
  outcome.loss = model->forward(ids, targets);
  backward(*model, outcome.loss);
  for (const at::Tensor& parameter : model->parameters()) outcome.gradients.push_back(parameter.grad());
  outcome.generator = generator_state();
  return outcome;
}

void expect_plain(const std::function<void(TransformerImpl&, const at::Tensor&)>& backward, const std::string& what) {
  const Outcome plain = run(Recompute::kNothing, backward);
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kGroups}) {
    const Outcome found = run(recompute, backward);
    EXPECT_TRUE(at::equal(found.loss, plain.loss)) << what;
    EXPECT_TRUE(at::equal(found.generator, plain.generator)) << what;
    for (size_t p = 0; p < plain.gradients.size(); ++p)
      EXPECT_TRUE(at::equal(found.gradients[p], plain.gradients[p])) << what << ", parameter " << p;
  }
}

TEST(Checkpointing, GradientsAreThoseOfThePlainCallBitForBit) {
  expect_plain([](TransformerImpl&, const at::Tensor& loss) { loss.backward(); }, "backward");
}

TEST(Checkpointing, AGraphThatIsKeptGivesTheGradientsAgain) {
  expect_plain(
      [](TransformerImpl&, const at::Tensor& loss) {
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();
      },
      "two backwards");
}

TEST(Checkpointing, APenaltyOnGradientsIsDifferentiatedThroughTheRegion) {
  expect_plain(
      [](TransformerImpl& model, const at::Tensor& loss) {
        const auto gradients = torch::autograd::grad({loss}, model.parameters(), {}, true, /*create_graph=*/true);
        at::Tensor penalty = loss;
        for (const at::Tensor& gradient : gradients) penalty = penalty + 0.1 * gradient.pow(2).sum();
        penalty.backward();
      },
      "create_graph");
}

TEST(Checkpointing, ABackwardToSomeTensorsAloneIsThePlainOne) {
  expect_plain(
      [](TransformerImpl& model, const at::Tensor& loss) {
        const auto weights = std::vector<at::Tensor>{model.blocks[4]->up->weight, model.blocks[5]->qkv->weight};
        const auto gradients = torch::autograd::grad({loss}, weights, {}, /*retain_graph=*/true);
        loss.backward();
        for (size_t i = 0; i < weights.size(); ++i) weights[i].mutable_grad().add_(gradients[i]);
      },
      "autograd::grad");
}

TEST(Checkpointing, ForwardAndBackwardMayRunOnOtherThreads) {
  const auto on_a_thread = [](Recompute recompute) {
    auto model = make_transformer(recompute, 3, 16, 2, 0.1);
    torch::manual_seed(7);
    const auto [ids, targets] = words_of(0, 2, 6);
    at::Tensor loss;
    std::thread([&, ids = ids, targets = targets] { loss = model->forward(ids, targets); }).join();
    std::thread([&] { loss.backward(); }).join();
    return model->blocks[0]->qkv->weight.grad();
  };
  EXPECT_TRUE(at::equal(on_a_thread(Recompute::kBlocks), on_a_thread(Recompute::kNothing)));
}

TEST(Checkpointing, ARegionWhoseInputNeedsNoGradientTrainsItsParameters) {
  torch::manual_seed(1);
  torch::nn::Linear layer(4, 4);
  const at::Tensor x = torch::randn({3, 4});
  layer->forward(x).tanh().sum().backward();
  const at::Tensor expected = layer->weight.grad().clone();
  layer->zero_grad();
  checkpoint([&](const at::Tensor& x) { return layer->forward(x).tanh(); }, x).sum().backward();
  EXPECT_TRUE(at::equal(layer->weight.grad(), expected));
}

TEST(Checkpointing, StatisticsOfABatchNormMoveOnceAndItsGradientsAreThePlainOnes) {
  struct Found {
    std::vector<at::Tensor> tensors;
  };
  const auto with = [](bool region) {
    torch::manual_seed(1);
    torch::nn::Sequential layers(
        torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
        torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(4).track_running_stats(true).affine(true)));
    const at::Tensor x = torch::randn({2, 3, 6, 6});
    for (int step = 0; step < 2; ++step)
      (region ? checkpoint([&](const at::Tensor& x) { return layers->forward(x); }, x) : layers->forward(x))
          .pow(2)
          .sum()
          .backward();
    Found found;
    for (const auto& buffer : layers->buffers()) found.tensors.push_back(buffer.clone());
    for (const auto& parameter : layers->parameters()) found.tensors.push_back(parameter.grad());
    return found;
  };
  const Found plain = with(false), found = with(true);
  ASSERT_EQ(found.tensors.size(), plain.tensors.size());
  for (size_t i = 0; i < plain.tensors.size(); ++i) EXPECT_TRUE(at::equal(found.tensors[i], plain.tensors[i])) << i;
}

TEST(Checkpointing, WhatARegionWritesIntoTensorsOfTheProgramIsWrittenOnce) {
  at::Tensor calls = torch::zeros({}, torch::kLong), average = torch::zeros({4}), cache = torch::zeros({2, 4});
  const at::Tensor w = torch::randn({4, 4}, torch::requires_grad());
  const auto region = [&](const at::Tensor& x) {
    calls.add_(1);
    const at::Tensor y = (x.matmul(w)).tanh();
    {
      const torch::NoGradGuard no_grad;
      average.mul_(0.9).add_(y.mean(0), 0.1);
      cache[1].copy_(y[0]);
    }
    return y.tanh();
  };
  const at::Tensor y = checkpoint(region, torch::randn({3, 4}));
  const at::Tensor average_before = average.clone(), cache_before = cache.clone();
  const auto version = average._version();
  y.sum().backward();
  EXPECT_EQ(calls.item<int64_t>(), 1);
  EXPECT_TRUE(at::equal(average, average_before));
  EXPECT_TRUE(at::equal(cache, cache_before));
  EXPECT_EQ(average._version(), version);
}

TEST(Checkpointing, AGeneratorAmongTheArgumentsDrawsTheSameAgain) {
  const auto with = [](bool region) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    const at::Tensor x = torch::ones({64}, torch::requires_grad());
    const auto noisy = [](const at::Tensor& x, std::optional<at::Generator> generator) {
      return x * torch::empty_like(x).bernoulli_(0.5, generator) * x;
    };
    const at::Tensor y = region ? checkpoint(noisy, x, std::optional<at::Generator>(generator)) : noisy(x, generator);
    y.sum().backward();
    return std::make_pair(x.grad(), generator.get_state());
  };
  EXPECT_TRUE(at::equal(with(true).first, with(false).first));
  EXPECT_TRUE(at::equal(with(true).second, with(false).second));
}

TEST(Checkpointing, AutocastIsThatOfTheForward) {
  const auto with = [](bool region) {
    torch::manual_seed(1);
    torch::nn::Linear layer(8, 8);
    const at::Tensor x = torch::randn({4, 8}, torch::requires_grad());
    at::Tensor y;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto f = [&](const at::Tensor& x) { return layer->forward(layer->forward(x).tanh()); };
    y = region ? checkpoint(f, x) : f(x);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.to(torch::kFloat).pow(2).sum().backward();
    return layer->weight.grad().clone();
  };
  EXPECT_TRUE(at::equal(with(true), with(false)));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

struct SquareFunction : torch::autograd::Function<SquareFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0], again = context->get_saved_variables()[0];
    return {(x + again) * gradients[0]};
  }
};

TEST(Checkpointing, FunctionsOfTheProgramThatReadWhatTheySavedTwice) {
  const at::Tensor x = torch::randn({5}, torch::requires_grad());
  checkpoint([](const at::Tensor& x) { return SquareFunction::apply(x.tanh()); }, x).sum().backward();
  const at::Tensor expected = 2 * x.detach().tanh() * (1 - x.detach().tanh().pow(2));
  EXPECT_TRUE(torch::allclose(x.grad(), expected));
}

TEST(Checkpointing, ARegionMayRunABackwardOfItsOwn) {
  const auto gradient_norm = [](const at::Tensor& x) {
    const at::Tensor inner = x.detach().requires_grad_(true);
    const at::Tensor energy = (inner.sin() * inner).sum();
    const at::Tensor force = torch::autograd::grad({energy}, {inner})[0];
    return (x * force).tanh();
  };
  const at::Tensor x = torch::randn({6}, torch::requires_grad());
  gradient_norm(x).sum().backward();
  const at::Tensor expected = x.grad().clone();
  x.mutable_grad().reset();
  checkpoint(gradient_norm, x).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), expected));
}

TEST(Checkpointing, WithoutGradientsItIsAPlainCall) {
  const torch::NoGradGuard no_grad;
  int calls = 0;
  const at::Tensor y = checkpoint([&](const at::Tensor& x) { return ++calls, x * 2; }, torch::ones({2}));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(y.requires_grad());
}

TEST(Checkpointing, EachRegionIsComputedAgainOnceABackward) {
  int calls = 0, inner_calls = 0;
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  const auto inner = [&](const at::Tensor& x) { return ++inner_calls, x.tanh().exp().tanh(); };
  const at::Tensor y =
      checkpoint([&](const at::Tensor& x) { return ++calls, checkpoint(inner, checkpoint(inner, x.sin()).cos()); }, x);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(inner_calls, 2);
  y.sum().backward();
  EXPECT_EQ(calls, 2);
  // One recomputation of the outer region ends early, once all tensors that the outer region saves
  // itself exist; each inner one is separate.
  EXPECT_LE(inner_calls, 6);
}

}  // namespace
}  // namespace gannet::test
