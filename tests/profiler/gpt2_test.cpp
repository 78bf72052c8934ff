// GPT-2 of examples/gpt2, whose output layer, losses and 16-bit products are autograd functions of its own, against its formula.
#include <ATen/Functions.h>
#include <gannet/profile.h>
#include <gtest/gtest.h>

#include "model.h"

namespace {

constexpr int64_t B = 2, T = 8, C = 16, V = 100, L = 2;

std::shared_ptr<gpt2::GptImpl> model() {
  return std::make_shared<gpt2::GptImpl>(gpt2::GptOptions{.vocabulary = V, .positions = T, .width = C, .layers = L, .heads = 2});
}

// Multiply-adds. Of a layer: 3 C^2 for query, key and value, C^2 for their projection, 8 C^2 for the feed-forward layer, for each
// token; two products of T x T scores with C. The output layer: C V for each token.
constexpr int64_t kDense = 12 * B * T * C * C, kScores = B * T * T * C, kOutput = B * T * C * V;

TEST(Gpt2Profile, MultiplyAddsAreTheFormulasToTheLastOne) {
  const auto gpt = model();
  const at::Tensor tokens = at::randint(V, {B, T}), targets = at::randint(V, {B, T});
  const auto profile = gannet::profile(gpt, tokens, targets);
  EXPECT_EQ(profile.forward().macs, L * (kDense + 2 * kScores) + kOutput);
  // Twice in backward; fused attention, which keeps no scores, computes them again: five products for two.
  EXPECT_EQ(profile.backward().macs, L * (2 * kDense + 5 * kScores) + 2 * kOutput);
  EXPECT_TRUE(profile.not_counted.empty()) << profile.not_counted.front().name;
}

TEST(Gpt2Profile, EachModuleHasItsOwn) {
  const auto gpt = model();
  const at::Tensor tokens = at::randint(V, {B, T}), targets = at::randint(V, {B, T});
  const auto profile = gannet::profile(gpt, tokens, targets);
  const auto macs = [&](const std::string& name) { return profile.module(name).forward.macs; };
  EXPECT_EQ(macs("transformer.h.0.attn.c_attn"), B * T * 3 * C * C);
  EXPECT_EQ(macs("transformer.h.1.attn"), B * T * 4 * C * C + 2 * kScores);  // the scores are attention's, not a projection's
  EXPECT_EQ(macs("transformer.h.1.mlp"), B * T * 8 * C * C);
  EXPECT_EQ(macs("transformer.h.0"), kDense + 2 * kScores);
  EXPECT_EQ(macs("transformer.wte"), kOutput);  // the output layer is tied to it
  EXPECT_EQ(profile.module("transformer.h.1.attn").backward.macs, 2 * B * T * 4 * C * C + 5 * kScores);
  EXPECT_EQ(profile.module("transformer.wte").backward.macs, 2 * kOutput);
}

TEST(Gpt2Profile, Bf16CountsTheSameInTheSameModules) {
  const auto gpt = model();
  const at::Tensor tokens = at::randint(V, {B, T}), targets = at::randint(V, {B, T});
  const auto wide = gannet::profile(gpt, tokens, targets);
  gpt->to(at::kBFloat16);
  const auto narrow = gannet::profile(gpt, tokens, targets);
  for (size_t m = 0; m < wide.modules.size(); ++m) {
    EXPECT_EQ(narrow.modules[m].forward.macs, wide.modules[m].forward.macs) << wide.modules[m].name;
    EXPECT_EQ(narrow.modules[m].backward.macs, wide.modules[m].backward.macs) << wide.modules[m].name;
  }
}

}  // namespace
