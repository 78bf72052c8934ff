// Memory kept by recomputation by operator, counted by LibTorch's allocator.
#include <gtest/gtest.h>

#include "activation/selective_outcome.h"

namespace gannet::test {
namespace {

TEST(SelectiveMemory, OfPreNormBlocks) {
  constexpr int64_t kCount = 4, kBatch = 4, kLength = 128, kWidth = 256;
  auto model = blocks(kCount, kWidth, 0);
  const Function f = [&](const at::Tensor& x) { return model->forward(x); };
  const auto run = [&](const Names& names) { return outcome(names, f, {kBatch, kLength, kWidth}, model->parameters()); };
  const auto in_units = [&](const SelectiveOutcome& one) {
    return static_cast<double>(one.kept) / (4.0 * kBatch * kLength * kWidth) / kCount;
  };
  const SelectiveOutcome plain = run({}), gelu = run({"gelu"}), norms = run({"gelu", "layer_norm"});
  RecordProperty("plain", std::to_string(in_units(plain)));
  RecordProperty("gelu", std::to_string(in_units(gelu)));
  RecordProperty("gelu, layer_norm", std::to_string(in_units(norms)));
  EXPECT_GT(in_units(plain), 15.9);
  EXPECT_LE(in_units(plain), 16.2);
  EXPECT_LE(in_units(gelu), 12.1);
  EXPECT_LE(in_units(norms), 10.1);
  expect_same(gelu, plain, "gelu");
  expect_same(norms, plain, "gelu, layer_norm");
  expect_same(run({"gelu", "layer_norm"}), norms, "twice");
}

TEST(SelectiveMemory, DropoutKeepsNoMask) {
  const Function f = [](const at::Tensor& x) { return torch::dropout(x.sin(), 0.3, true).sin(); };  // sin keeps its input
  const SelectiveOutcome plain = outcome({}, f, {256, 1024}), dropped = outcome({"dropout"}, f, {256, 1024});
  expect_same(dropped, plain, "dropout");
  // y, x.sin() and what the mask is multiplied with; the second sin's input.
  EXPECT_GE(plain.kept, 3 << 20);
  // Nothing is kept of the dropout's input either way, so nothing is saved.
  EXPECT_LE(dropped.kept, plain.kept + (64 << 10));
  const Function kept_input = [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    return y.sin() + torch::dropout(y, 0.3, true).sin();  // sin keeps y
  };
  const SelectiveOutcome plain_too = outcome({}, kept_input, {256, 1024}), spared = outcome({"dropout"}, kept_input, {256, 1024});
  expect_same(spared, plain_too, "dropout of a tensor that is kept");
  EXPECT_LE(spared.kept, plain_too.kept - (2 << 20) + (64 << 10)) << "neither its mask nor its result";
}

TEST(SelectiveMemory, AChainKeepsItsBeginningAlone) {
  const Function f = [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    return torch::sin(torch::layer_norm(torch::silu(torch::gelu(y)), {1024})).sum();
  };
  const SelectiveOutcome plain = outcome({"tanh"}, f, {256, 1024});
  const SelectiveOutcome chain = outcome({"gelu", "silu", "layer_norm"}, f, {256, 1024});
  expect_same(chain, plain, "chain");
  EXPECT_GE(plain.kept, 4 << 20) << "y, and three results";
  EXPECT_LE(chain.kept, (1 << 20) + (128 << 10)) << "y";
}

TEST(Selective, WhatItMakesIsFreed) {
  const Counted counted;
  const at::Tensor x = torch::randn({256, 1024}, torch::requires_grad());
  const int64_t before = CountingAllocator::live;
  {
    const at::Tensor y =
        forward_with(kMany, [](const at::Tensor& x) { return torch::gelu(torch::layer_norm(x, {1024})).sin(); }, x);
  }
  EXPECT_EQ(CountingAllocator::live, before);
}

}  // namespace
}  // namespace gannet::test
