// The kernels beside their rules on plain numbers (nn/rule.h).
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "nn/attention.h"
#include "nn/reference.h"

namespace gannet::test {
namespace {

TEST(TransformerDropout, IsPhilox) {
  // The first vectors of Random123's kat_vectors.
  const auto zero = rule::philox({{0, 0, 0, 0}}, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const auto ones = rule::philox({{~0u, ~0u, ~0u, ~0u}}, ~uint64_t{0});
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
}

TEST(TransformerDropout, HasTheRulesWords) {
  const nn::Dropout dropout{0.1, 0xfedcba9876543210u, 13};
  for (const uint64_t row : {uint64_t{0}, uint64_t{3}, uint64_t{5} << 32})
    for (const uint64_t first : {0u, 64u, 512u}) {
      std::vector<uint32_t> words(256);
      nn::dropout_words(dropout, row, first, 200, words.data());
      for (uint64_t i = 0; i < words.size(); ++i)
        ASSERT_EQ(words[i], rule::dropout_word(row, first + i, dropout.stream, dropout.key)) << row << ", " << first + i;
    }
}

TEST(TransformerDropout, DropsItsRatio) {
  nn::Dropout dropout{0.1, 1, 0};
  std::vector<uint32_t> words(1 << 20);
  nn::dropout_words(dropout, 0, 0, 1 << 20, words.data());
  int64_t dropped = 0;
  for (const uint32_t word : words) dropped += word < dropout.threshold();
  EXPECT_NEAR(static_cast<double>(dropped) / (1 << 20), 0.1, 0.0015);  // five standard deviations
}

TEST(TransformerKernels, GeluIsTheRules) {
  const at::Tensor values = torch::linspace(-12, 12, 1037);
  for (const bool is_tanh : {false, true}) {
    at::Tensor x = values.clone(), y = torch::empty_like(x), gradient = torch::ones_like(x), sums = torch::empty_like(x);
    nn::bias_gelu<float>({1, x.numel()}, x.mutable_data_ptr<float>(), nullptr, y.mutable_data_ptr<float>(), is_tanh);
    nn::gelu_backward<float>({1, x.numel()}, x.const_data_ptr<float>(), gradient.mutable_data_ptr<float>(),
                             sums.mutable_data_ptr<float>(), is_tanh);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto v = static_cast<double>(x[i].item<float>());
      const double erf = std::erf(v / std::sqrt(2.0)), falls = std::exp(-v * v / 2);
      EXPECT_NEAR(y[i].item<float>(), is_tanh ? rule::gelu_tanh(v) : rule::gelu_erf(v, erf), 2e-6) << v;
      EXPECT_NEAR(gradient[i].item<float>(), is_tanh ? rule::gelu_tanh_derivative(v) : rule::gelu_erf_derivative(v, erf, falls),
                  2e-6)
          << v;
      const float z = static_cast<float>(v / std::sqrt(2.0));
      EXPECT_NEAR(rule::erf_within_float(z, std::exp(-z * z)), erf, 4e-7);
    }
    EXPECT_TRUE(at::equal(sums, gradient)) << "the sums over one row";
  }
}

TEST(TransformerKernels, SumsOverRowsAreThoseOfAllRows) {
  const at::Tensor gradient = torch::randn({1000, 37});
  at::Tensor sums = torch::empty({37});
  nn::dropout_backward<float>({1000, 37}, gradient.const_data_ptr<float>(), {}, nullptr, sums.mutable_data_ptr<float>());
  EXPECT_TRUE(at::allclose(sums, gradient.sum(0), 1e-5, 1e-4));
}

TEST(TransformerKernels, RepeatBitForBitWithAnyNumberOfThreads) {
  constexpr int64_t kBatch = 2, kWords = 700, kWidth = 48, kRows = kBatch * kWords;
  torch::manual_seed(1);
  const at::Tensor qkv = torch::randn({kRows, 3 * kWidth}), gradient = torch::randn({kRows, kWidth}),
                   x = torch::randn({kRows, kWidth});
  const at::Tensor gamma = torch::randn({kWidth}), beta = torch::randn({kWidth}), residual = torch::randn({kRows, kWidth});
  const nn::MatrixSize size{kRows, kWidth};
  const nn::Norm<float> norm{gamma.const_data_ptr<float>(), beta.const_data_ptr<float>(), 1e-5};
  const nn::Dropout dropout{0.1, 77, 4};
  const auto run = [&] {
    std::vector<at::Tensor> results;
    const auto made = [&](at::IntArrayRef shape) {
      results.push_back(torch::empty(shape));
      return results.back().mutable_data_ptr<float>();
    };
    const nn::AttentionResult attended = nn::attention(qkv, {}, kBatch, 3, dropout);
    results = {attended.context, attended.lse, nn::attention_backward(gradient, qkv, attended, {}, 3, dropout), x.clone()};
    float *branch = results.back().mutable_data_ptr<float>(), *output = made(x.sizes()), *mean = made({kRows}),
          *rstd = made({kRows});
    nn::bias_dropout_residual<float>(size, branch, beta.const_data_ptr<float>(), residual.const_data_ptr<float>(), dropout, &norm,
                                     output, mean, rstd);
    float *gamma_gradient = made({kWidth}), *beta_gradient = made({kWidth});
    nn::norm_backward<float>(
        size, {gradient.const_data_ptr<float>(), branch, false, mean, rstd, nullptr, gamma_gradient, beta_gradient}, norm,
        made(x.sizes()));
    const nn::AttentionResult alone = nn::attention(qkv.slice(0, 0, 120), {}, 1, 1, dropout);  // a single item
    results.push_back(alone.context);
    results.push_back(nn::attention_backward(gradient.slice(0, 0, 120), qkv.slice(0, 0, 120), alone, {}, 1, dropout));
    results.push_back(gradient.clone());
    float* through = results.back().mutable_data_ptr<float>();
    nn::gelu_backward<float>(size, x.const_data_ptr<float>(), through, made({kWidth}), false);
    float* kept = made(x.sizes());
    nn::dropout_backward<float>(size, gradient.const_data_ptr<float>(), dropout, kept, made({kWidth}));
    return results;
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run();
  for (const int threads : {2, 3, 4}) {
    at::set_num_threads(threads);
    const auto several = run();
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(several[i], one[i])) << threads << " threads, result " << i;
  }
  at::set_num_threads(before);
}

// Each kind of SIMD that this processor has, and the fallback without (0).
TEST(TransformerKernels, HaveTheSameNumbersWithEverySimd) {
  int64_t seen = 0;
  for (const int64_t target : {int64_t{0}, int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_SSE4}, int64_t{HWY_NEON}}) {
    if (target != 0 && !(hwy::SupportedTargets() & target)) continue;
    ++seen;
    hwy::GetChosenTarget().Update(target);
    const nn::Dropout dropout{0.1, 0xfedcba9876543210u, 13};
    std::vector<uint32_t> words(128);
    nn::dropout_words(dropout, 9, 64, 128, words.data());
    for (uint64_t i = 0; i < words.size(); ++i)
      EXPECT_EQ(words[i], rule::dropout_word(9, 64 + i, dropout.stream, dropout.key)) << std::to_string(target);
    for (const bool is_tanh : {false, true}) {
      const auto call = call_of(false, 0.1, is_tanh);
      const Problem of = problem(2, 70);
      const Result expected = run(composition, call, of.x, {}, of.parameters, of.gradient, torch::kDouble);
      expect_close(run(nn::run_layer, call, of.x, {}, of.parameters, of.gradient, torch::kFloat), expected, 1e-5,
                   std::to_string(target));
      expect_close(run(nn::run_layer, call, of.x, {}, of.parameters, of.gradient, torch::kDouble), expected, 1e-12,
                   std::to_string(target));
    }
    hwy::GetChosenTarget().DeInit();
  }
  EXPECT_GT(seen, 1) << "this processor has no SIMD that the kernels know";
}

}  // namespace
}  // namespace gannet::test
