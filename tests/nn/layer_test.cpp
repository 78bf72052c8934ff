// The transformer layer's numbers: beside the composition of LibTorch's operators, by finite differences, and bit by bit with
// any number of threads and in a region.
#include <ATen/autocast_mode.h>
#include <gannet/checkpointing.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/reference.h"
#include "nn/transformer_operators.h"

namespace gannet::test {
namespace {

Result layer(const nn::LayerCall& call, const Problem& of, const at::Tensor& mask = {}, at::ScalarType dtype = torch::kFloat) {
  return run(nn::run_layer, call, of.x, mask, of.parameters, of.gradient, dtype);
}
Result reference(const nn::LayerCall& call, const Problem& of, const at::Tensor& mask = {}) {
  return run(composition, call, of.x, mask, of.parameters, of.gradient, torch::kDouble);
}

TEST(TransformerLayer, IsTheCompositionOfOperators) {
  for (const bool is_pre_norm : {true, false})
    for (const bool is_tanh : {true, false})
      for (const double ratio : {0.0, 0.1}) {
        const auto call = call_of(is_pre_norm, ratio, is_tanh);
        const Problem of = problem(2, 9);
        expect_close(layer(call, of), reference(call, of), 1e-5, is_pre_norm ? "pre-norm" : "post-norm");
        expect_close(layer(call, of, {}, torch::kDouble), reference(call, of), 1e-12, "fp64");
      }
}

Result by_operators(const nn::LayerCall& call, const Problem& of, const at::Tensor& mask = {},
                    at::ScalarType dtype = torch::kFloat) {
  return run(nn::layer_by_operators, call, of.x, mask, of.parameters, of.gradient, dtype);
}

// The path of other devices, on the CPU.
TEST(TransformerLayerByOperators, IsTheCompositionAndTheCpusKernels) {
  for (const bool is_pre_norm : {true, false})
    for (const bool is_tanh : {true, false})
      for (const double ratio : {0.0, 0.1}) {
        const auto call = call_of(is_pre_norm, ratio, is_tanh);
        const Problem of = problem(2, 9);
        expect_close(by_operators(call, of), reference(call, of), 1e-5, is_pre_norm ? "pre-norm" : "post-norm");
        expect_close(by_operators(call, of, {}, torch::kDouble), layer(call, of, {}, torch::kDouble), 1e-12, "the kernels");
      }
}

TEST(TransformerLayerByOperators, AddsMasksAndGivesNothingToWordsThatMayLookAtNothing) {
  const Problem of = problem(2, 140);
  at::Tensor padding = torch::zeros({2, 1, 1, 140});
  padding.index_put_({1, 0, 0, torch::indexing::Slice(100)}, -10000.0);
  at::Tensor causal = torch::full({140, 140}, -std::numeric_limits<float>::infinity()).triu(1).expand({2, 1, 140, 140}).clone();
  causal.index_put_({0, 0, 3}, -std::numeric_limits<float>::infinity());
  for (const double ratio : {0.0, 0.1})
    for (const at::Tensor& mask : {padding, causal}) {
      const auto call = call_of(true, ratio);
      expect_close(by_operators(call, of, mask, torch::kDouble), layer(call, of, mask, torch::kDouble), 1e-10, "masked");
    }
}

TEST(TransformerLayerByOperators, DropsTheElementsThatTheKernelsDrop) {
  const nn::Dropout dropout{.ratio = 0.3, .key = 0xFEDCBA9876543210u, .stream = 0x80000005u};
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 63}, {2, 64}, {5, 1000}, {70'000, 257}})
    EXPECT_TRUE(nn::kept_elements(dropout, rows, columns, at::kCPU).equal(keep_mask(dropout, rows, columns).ne(0)))
        << rows << " by " << columns;
}

TEST(TransformerLayerByOperators, OfNoWordsIsNothingAndHasGradients) {
  const Result found = by_operators(call_of(true, 0.1), problem(0, 5));
  EXPECT_EQ(found.y.numel(), 0);
  for (const at::Tensor& gradient : found.gradients) EXPECT_TRUE(gradient.defined() && gradient.eq(0).all().item<bool>());
}

TEST(TransformerLayer, IsTheCompositionOverSeveralTiles) {
  for (const int64_t length : {127, 130, 515, 1030}) {
    const auto call = call_of(true, 0.1);
    const Problem of = problem(1, length);
    expect_close(layer(call, of), reference(call, of), 1e-5, std::to_string(length) + " words");
  }
}

TEST(TransformerLayer, AddsMasksOfBertsShapes) {
  const Problem of = problem(2, 140);
  at::Tensor padding = torch::zeros({2, 1, 1, 140});
  padding.index_put_({1, 0, 0, torch::indexing::Slice(100)}, -10000.0);
  const at::Tensor causal = torch::full({140, 140}, -std::numeric_limits<float>::infinity()).triu(1).expand({2, 1, 140, 140});
  const at::Tensor heads = torch::randn({1, 3, 140, 140}), queries = torch::randn({2, 3, 140, 1});
  for (const bool is_pre_norm : {true, false})
    for (const at::Tensor& mask : {padding, causal, heads, queries}) {
      const auto call = call_of(is_pre_norm, 0.1);
      expect_close(layer(call, of, mask), reference(call, of, mask), 1e-5, "masked");
    }
}

TEST(TransformerLayer, GivesNothingToWordsThatMayLookAtNothing) {
  const Problem of = problem(1, 600);
  at::Tensor mask = torch::zeros({1, 1, 600, 600});
  mask.index_put_({0, 0, 3}, -std::numeric_limits<float>::infinity());
  // In a separate tile, and for words that attend only to the second tile.
  mask.index_put_({0, 0, 5, torch::indexing::Slice(0, 512)}, -std::numeric_limits<float>::infinity());
  const Result found = layer(call_of(true), of, mask);
  EXPECT_TRUE(found.y.isfinite().all().item<bool>());
  for (const at::Tensor& gradient : found.gradients) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

TEST(TransformerLayer, HasTheDerivativesOfFiniteDifferences) {
  for (const bool is_pre_norm : {true, false})
    for (const bool is_tanh : {true, false}) {
      const auto call = call_of(is_pre_norm, 0.1, is_tanh);
      const Problem of = problem(2, 7);
      const Result found = layer(call, of, {}, torch::kDouble);
      const auto value = [&](const Problem& at) {
        return (nn::run_layer(call, at.x, {}, at.parameters) * at.gradient).sum().item<double>();
      };
      constexpr double kStep = 1e-5;
      for (size_t i = 0; i <= nn::kParameters; ++i) {
        Problem above = of, below = of;
        at::Tensor &up = i == 0 ? above.x : above.parameters[i - 1], &down = i == 0 ? below.x : below.parameters[i - 1];
        const at::Tensor direction = torch::randn_like(up);
        up = up + kStep * direction;
        down = down - kStep * direction;
        const double slope = (value(above) - value(below)) / (2 * kStep);
        EXPECT_NEAR((found.gradients[i] * direction).sum().item<double>(), slope, 1e-6 * std::max(1.0, std::abs(slope))) << i;
      }
    }
}

// LibTorch's products of matrices are the layer's too, and may add in another order with another number of threads; masks and
// kernels (kernels_test.cpp) do not.
TEST(TransformerLayer, RepeatsBitForBitAndDropsTheSameWithAnyNumberOfThreads) {
  const Problem of = problem(2, 700, 48, 100);
  const int before = at::get_num_threads();
  for (const bool is_pre_norm : {true, false}) {
    const auto call = call_of(is_pre_norm, 0.1);
    at::set_num_threads(1);
    const Result one = layer(call, of);
    for (const int threads : {1, 2, 3, 4}) {
      at::set_num_threads(threads);
      const Result first = layer(call, of);
      expect_close(first, one, 1e-6, std::to_string(threads) + " threads");
      expect_equal(layer(call, of), first, std::to_string(threads) + " threads, again");
    }
  }
  at::set_num_threads(before);
}

nn::TransformerLayer small_layer(double ratio, const std::function<void(nn::TransformerLayerConfig&)>& change = {}) {
  nn::TransformerLayerConfig config;
  config.hidden_size = 24, config.heads = 3, config.initializer_range = 0.2;
  config.attn_dropout_ratio = config.hidden_dropout_ratio = ratio;
  if (change) change(config);
  torch::manual_seed(1);
  return nn::TransformerLayer(config);
}

TEST(TransformerLayer, DropsOtherElementsInEachMicroBatchAndTheSameAfterTheSameSeed) {
  const at::Tensor x = torch::randn({2, 5, 24});
  nn::TransformerLayer module = small_layer(0.3);
  torch::manual_seed(4);
  const at::Tensor first = module(x), second = module(x);
  EXPECT_FALSE(at::equal(first, second));
  torch::manual_seed(4);
  EXPECT_TRUE(at::equal(module(x), first));
  const at::Tensor after = torch::randn({1});
  torch::manual_seed(4);
  {
    const at::Tensor other = small_layer(0.3)(torch::randn({7, 50, 24}));
  }
  torch::manual_seed(4);
  const at::Tensor seeded = small_layer(0.3, [](auto& config) { config.seed = 9; })(x);
  EXPECT_FALSE(at::equal(seeded, first));
  module->eval();
  EXPECT_TRUE(at::equal(module(x), module(x)));
}

TEST(TransformerLayer, IsTheSameInARegion) {
  for (const bool is_pre_norm : {true, false}) {
    const auto train = [&](bool has_regions, bool is_invertible) {
      std::vector<nn::TransformerLayer> layers;
      for (int64_t i = 0; i < 3; ++i)
        layers.push_back(small_layer(0.2, [&](auto& config) {
          config.pre_layer_norm = is_pre_norm, config.normalize_invertible = is_invertible, config.layer_id = i;
        }));
      torch::manual_seed(3);
      at::Tensor x = torch::randn({2, 6, 24}, torch::requires_grad());
      const at::Tensor leaf = x;
      for (auto& each : layers)
        x = has_regions ? checkpointing::checkpoint([each](const at::Tensor& x) mutable { return each(x); }, x) : each(x);
      x.square().sum().backward();
      std::vector<at::Tensor> gradients{leaf.grad()};
      for (auto& each : layers)
        for (auto& parameter : each->parameters()) gradients.push_back(parameter.grad());
      return Result{x.detach(), gradients};
    };
    for (const bool is_invertible : {false, true})
      expect_equal(train(true, is_invertible), train(false, is_invertible), "region");
  }
}

TEST(TransformerLayer, LeavesOutGradientsOfWhatIsFrozen) {
  const at::Tensor x = torch::randn({2, 5, 24});
  nn::TransformerLayer all = small_layer(0), some = small_layer(0);
  all(x).square().sum().backward();
  some->inter_w.requires_grad_(false);
  some->norm_b.requires_grad_(false);
  some(x).square().sum().backward();
  EXPECT_FALSE(some->inter_w.grad().defined());
  EXPECT_FALSE(some->norm_b.grad().defined());
  EXPECT_TRUE(at::equal(some->attn_qkvw.grad(), all->attn_qkvw.grad()));
  EXPECT_TRUE(at::equal(some->output_w.grad(), all->output_w.grad()));
}

TEST(TransformerLayer, TakesStridedInputsAndNone) {
  nn::TransformerLayer module = small_layer(0);
  const at::Tensor x = torch::randn({5, 2, 24});
  EXPECT_TRUE(at::equal(module(x.transpose(0, 1)), module(x.transpose(0, 1).contiguous())));
  const at::Tensor empty = torch::randn({0, 5, 24}, torch::requires_grad());
  const at::Tensor y = module(empty);
  EXPECT_EQ(y.sizes(), empty.sizes());
  y.sum().backward();
  EXPECT_EQ(module->attn_qkvw.grad().abs().max().item<double>(), 0);
}

TEST(TransformerLayer, ComputesInFp32WhateverTheDtype) {
  nn::TransformerLayer exact = small_layer(0.2);
  const at::Tensor x = torch::randn({2, 5, 24}).to(torch::kBFloat16);
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    nn::TransformerLayer low = small_layer(0.2);
    low->to(dtype);
    for (auto& parameter : exact->named_parameters()) {
      const torch::NoGradGuard no_grad;
      parameter.value().copy_(low->named_parameters()[parameter.key()]);
      parameter.value().mutable_grad().reset();
    }
    torch::manual_seed(5);
    const at::Tensor expected = exact(x.to(torch::kFloat));
    expected.sum().backward();
    torch::manual_seed(5);
    const at::Tensor found = low(x);
    EXPECT_EQ(found.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(at::equal(found, expected.to(torch::kBFloat16)));
    found.sum().backward();
    EXPECT_EQ(low->output_b.grad().scalar_type(), dtype);
    EXPECT_TRUE(at::equal(low->output_b.grad(), exact->output_b.grad().to(dtype)));
  }
}

TEST(TransformerLayer, IsLeftAloneByAutocast) {
  nn::TransformerLayer module = small_layer(0);
  const at::Tensor x = torch::randn({2, 5, 24});
  const at::Tensor expected = module(x);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor found = module(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(at::equal(found, expected));
}

}  // namespace
}  // namespace gannet::test
