// Counts of each kind of operator, against formulas written out by hand.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gannet/profile.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

namespace {

using at::Tensor;
using gannet::ModelProfile;

// A model of any parameters and any forward.
struct Anything : torch::nn::Module {
  Tensor parameter(at::IntArrayRef shape) { return register_parameter("p" + std::to_string(count_++), at::randn(shape)); }
  size_t count_ = 0;
};

ModelProfile count(const Anything& model, const std::function<Tensor()>& forward, bool backward = true) {
  return gannet::profile_forward(model, forward, {.warm_up = 0, .backward = backward});
}

struct Macs {
  int64_t forward, backward;
  bool operator==(const Macs&) const = default;
};
void PrintTo(const Macs& macs, std::ostream* out) { *out << macs.forward << " forward, " << macs.backward << " backward"; }
Macs macs(const ModelProfile& profile) { return {profile.forward().macs, profile.backward().macs}; }

TEST(Counts, AMatrixProductCountsOnceHoweverItIsCalled) {
  Anything m;
  const Tensor a = m.parameter({3, 4}), b = m.parameter({4, 5}), bias = m.parameter({5}), vector = m.parameter({4}),
               wide = m.parameter({5, 4});
  const Tensor batch_a = m.parameter({2, 3, 4}), batch_b = m.parameter({2, 4, 5}), batch_bias = m.parameter({2, 3, 5});
  const Macs once{60, 120}, twice{120, 240};
  EXPECT_EQ(macs(count(m, [&] { return at::mm(a, b); })), once);
  EXPECT_EQ(macs(count(m, [&] { return at::matmul(a, b); })), once);
  EXPECT_EQ(macs(count(m, [&] { return at::addmm(bias, a, b); })), once);
  EXPECT_EQ(macs(count(m, [&] { return at::linear(a, wide, bias); })), once);
  EXPECT_EQ(macs(count(m, [&] { return at::linear(a, wide); })), once);
  EXPECT_EQ(macs(count(m, [&] { return at::linear(batch_a, wide, bias); })), twice);
  EXPECT_EQ(macs(count(m, [&] { return at::einsum("ij,jk->ik", {a, b}); })), once);
  EXPECT_EQ(macs(count(m, [&] { return at::bmm(batch_a, batch_b); })), twice);
  EXPECT_EQ(macs(count(m, [&] { return at::matmul(batch_a, batch_b); })), twice);
  EXPECT_EQ(macs(count(m, [&] { return at::baddbmm(batch_bias, batch_a, batch_b); })), twice);
  EXPECT_EQ(macs(count(m, [&] { return at::matmul(batch_a, b); })), twice);
  EXPECT_EQ(macs(count(m, [&] { return at::mv(a, vector); })).forward, 12);
  EXPECT_EQ(macs(count(m, [&] { return at::dot(vector, vector); })).forward, 4);
}

TEST(Counts, AMultiplyAddIsTwoOperationsAndTheBiasIsFree) {
  Anything m;
  const Tensor a = m.parameter({3, 4}), b = m.parameter({4, 5}), bias = m.parameter({5});
  EXPECT_EQ(count(m, [&] { return at::addmm(bias, a, b); }).forward().flops, 120);
}

TEST(Counts, BackwardCountsOnlyTheGradientsThatAreAskedFor) {
  Anything m;
  const Tensor data = at::randn({3, 4}), weight = m.parameter({5, 4});
  EXPECT_EQ(macs(count(m, [&] { return at::linear(data, weight); })), (Macs{60, 60}));
}

TEST(Counts, AConvolutionCountsEachFilterAtEachPlace) {
  Anything m;
  const Tensor image = m.parameter({2, 4, 10, 9}), filters = m.parameter({6, 4, 3, 3}), grouped = m.parameter({6, 2, 3, 3}),
               bias = m.parameter({6});
  const std::vector<int64_t> unpadded{0, 0};
  const auto both = [](int64_t forward) { return Macs{forward, 2 * forward}; };
  EXPECT_EQ(macs(count(m, [&] { return at::conv2d(image, filters, bias); })), both(2 * 6 * 8 * 7 * 4 * 9));
  EXPECT_EQ(macs(count(m, [&] { return at::conv2d(image, filters, bias, 2, 1); })), both(2 * 6 * 5 * 5 * 4 * 9));
  EXPECT_EQ(macs(count(m, [&] { return at::conv2d(image, filters, {}, 1, unpadded, 2); })), both(2 * 6 * 6 * 5 * 4 * 9));
  EXPECT_EQ(macs(count(m, [&] { return at::conv2d(image, grouped, bias, 1, unpadded, 1, 2); })), both(2 * 6 * 8 * 7 * 2 * 9));
  // Transposed: every element of the input is spread by a filter.
  const Tensor spread = m.parameter({4, 5, 3, 3});
  EXPECT_EQ(macs(count(m, [&] { return at::conv_transpose2d(image, spread, {}, 2); })), both(2 * 4 * 10 * 9 * 5 * 9));
  const Tensor line = m.parameter({2, 4, 10}), line_filters = m.parameter({6, 4, 3});
  EXPECT_EQ(macs(count(m, [&] { return at::conv1d(line, line_filters); })), both(2 * 6 * 8 * 4 * 3));
  const Tensor volume = m.parameter({1, 2, 5, 5, 5}), volume_filters = m.parameter({3, 2, 2, 2, 2});
  EXPECT_EQ(macs(count(m, [&] { return at::conv3d(volume, volume_filters); })), both(3 * 64 * 2 * 8));
}

TEST(Counts, TheBiasOfAConvolutionIsASumInBackward) {
  Anything m;
  const Tensor image = at::randn({2, 4, 10, 9}), filters = m.parameter({6, 4, 3, 3}), bias = m.parameter({6});
  const auto profile = count(m, [&] { return at::conv2d(image, filters, bias); });
  const int64_t places = 2 * 6 * 8 * 7;
  EXPECT_EQ(profile.backward().macs, places * 4 * 9);  // for only the weight
  EXPECT_EQ(profile.backward().flops, 2 * places * 4 * 9 + places);
}

TEST(Counts, FusedAttentionCountsWhatTheMathCountsAndItsBackwardComputesTheScoresAgain) {
  Anything m;
  const int64_t B = 2, H = 3, T = 16, D = 8, scores = B * H * T * T;
  const Tensor q = m.parameter({B, H, T, D}), k = m.parameter({B, H, T, D}), v = m.parameter({B, H, T, D});
  const auto fused = count(m, [&] { return at::scaled_dot_product_attention(q, k, v); });
  EXPECT_EQ(macs(fused), (Macs{2 * scores * D, 5 * scores * D}));
  EXPECT_EQ(fused.forward().flops, 4 * scores * D + scores);
  EXPECT_EQ(macs(count(m, [&] { return at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true); })), macs(fused));
  const auto math = count(m, [&] { return at::matmul(at::softmax(at::matmul(q, k.transpose(-2, -1)), -1), v); });
  EXPECT_EQ(macs(math), (Macs{2 * scores * D, 4 * scores * D}));
  EXPECT_EQ(math.forward().flops, fused.forward().flops);
}

TEST(Counts, RecurrentLayersMultiplyByEachMatrixAtEachStep) {
  Anything m;
  const int64_t T = 5, N = 3, I = 4, H = 6;
  const Tensor x = at::randn({T, N, I}), h = at::zeros({1, N, H}), c = at::zeros({1, N, H});
  const auto weights = [&](int64_t gates) {
    return std::vector<Tensor>{m.parameter({gates * H, I}), m.parameter({gates * H, H}), m.parameter({gates * H}),
                               m.parameter({gates * H})};
  };
  const auto lstm = weights(4), gru = weights(3), rnn = weights(1);
  const auto expected = [&](int64_t gates) { return T * N * gates * H * (I + H); };
  EXPECT_EQ(count(m, [&] { return std::get<0>(at::lstm(x, {h, c}, lstm, true, 1, 0, true, false, false)); }).forward().macs,
            expected(4));
  EXPECT_EQ(count(m, [&] { return std::get<0>(at::gru(x, h, gru, true, 1, 0, true, false, false)); }).forward().macs,
            expected(3));
  EXPECT_EQ(count(m, [&] { return std::get<0>(at::rnn_tanh(x, h, rnn, true, 1, 0, true, false, false)); }).forward().macs,
            expected(1));
  EXPECT_EQ(
      count(m, [&] { return std::get<0>(at::lstm_cell(x[0], {h[0], c[0]}, lstm[0], lstm[1], lstm[2], lstm[3])); }).forward().macs,
      expected(4) / T);
}

TEST(Counts, OperatorsOnElementsCountTheElements) {
  Anything m;
  const Tensor x = m.parameter({4, 6, 8, 8}), scale = m.parameter({8}), shift = m.parameter({8}),
               channel_scale = m.parameter({6}), channel_shift = m.parameter({6});
  const int64_t n = x.numel();
  const auto flops = [&](const std::function<Tensor()>& forward) {
    const auto profile = count(m, forward);
    EXPECT_TRUE(profile.not_counted.empty()) << profile.not_counted.front().name;
    EXPECT_EQ(profile.forward().macs, 0);
    return std::pair(profile.forward().flops, profile.backward().flops);
  };
  using Both = std::pair<int64_t, int64_t>;
  EXPECT_EQ(flops([&] { return at::relu(x); }), Both(n, n));
  EXPECT_EQ(flops([&] { return at::gelu(x); }), Both(n, n));
  EXPECT_EQ(flops([&] { return at::silu(x); }), Both(n, n));
  EXPECT_EQ(flops([&] { return at::softmax(x, -1); }), Both(n, n));
  EXPECT_EQ(flops([&] { return at::log_softmax(x, -1); }), Both(n, n));
  EXPECT_EQ(flops([&] { return at::layer_norm(x, {8}, scale, shift); }), Both(5 * n, 10 * n));
  EXPECT_EQ(flops([&] { return at::layer_norm(x, {8}); }), Both(4 * n, 8 * n));
  EXPECT_EQ(flops([&] { return at::group_norm(x, 2, channel_scale, channel_shift); }), Both(5 * n, 10 * n));
  EXPECT_EQ(flops([&] { return at::batch_norm(x, channel_scale, channel_shift, {}, {}, true, 0.1, 1e-5, false); }),
            Both(5 * n, 10 * n));
  EXPECT_EQ(flops([&] { return at::max_pool2d(x, 2); }), Both(n, n));
  EXPECT_EQ(flops([&] { return at::avg_pool2d(x, 2); }), Both(n, n));
  EXPECT_EQ(flops([&] { return x + x; }).first, n);
  EXPECT_EQ(flops([&] { return x.sum(); }), Both(n, 0));
  EXPECT_EQ(flops([&] { return at::sigmoid(x); }).first, n);
  EXPECT_EQ(flops([&] { return at::mse_loss(x, at::zeros_like(x)); }).first, 3 * n);
}

TEST(Counts, LookUpsViewsAndCopiesCountNone) {
  Anything m;
  const Tensor table = m.parameter({10, 4}), indices = at::arange(6);
  const auto profile = count(
      m, [&] { return at::cat({at::embedding(table, indices), table.index_select(0, indices)}).t().contiguous().view({-1}); });
  EXPECT_EQ(profile.forward().flops, 0);
  EXPECT_TRUE(profile.not_counted.empty()) << profile.not_counted.front().name;
}

TEST(Counts, AnOperatorWithoutARuleIsListedWithItsCallsAndInTheText) {
  Anything m;
  const Tensor x = m.parameter({3, 3});
  const auto profile = count(m, [&] { return at::linalg_matrix_exp(at::linalg_matrix_exp(x)); }, /*backward=*/false);
  ASSERT_EQ(profile.not_counted.size(), 1u);
  EXPECT_EQ(profile.not_counted[0].name, "aten::linalg_matrix_exp");
  EXPECT_EQ(profile.not_counted[0].calls, 2);
  EXPECT_THAT(profile.to_string({.detailed = false}), testing::HasSubstr("aten::linalg_matrix_exp  x2"));
}

TEST(Counts, OperatorsAreSummedByName) {
  Anything m;
  const Tensor a = m.parameter({3, 4}), b = m.parameter({4, 5});
  const auto profile = count(m, [&] { return at::relu(at::mm(a, b)); });
  const auto& mm = profile.operators.front();  // the most first
  EXPECT_EQ(mm.name, "aten::mm");
  EXPECT_EQ(mm.kind, "matmul");
  EXPECT_EQ(mm.forward_calls, 1);
  EXPECT_EQ(mm.backward_calls, 2);
  EXPECT_EQ(mm.backward.flops, 240);
}

}  // namespace
