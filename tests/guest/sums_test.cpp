// Gradients of 16 bits, summed over ranks: what overflows and what the sum's rounding costs.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <iostream>

#include "comm/ranks.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;

// Its gradient is `x` for any weights.
struct OneImpl : torch::nn::Module {
  explicit OneImpl(int64_t numel) { w = register_parameter("w", torch::zeros({numel})); }
  at::Tensor forward(const at::Tensor& x) { return (w.to(torch::kFloat) * x).sum(); }
  at::Tensor w;
};

std::shared_ptr<gannet::Engine<OneImpl>> engine_of(int64_t numel, int64_t stage, double loss_scale) {
  Dict config = config_with({{"fp16", Dict{{"enabled", true}, {"loss_scale", loss_scale}}},
                             {"gradient_clipping", 0.0},
                             {"zero_optimization", Dict{{"stage", stage}}},
                             {"optimizer", Dict{{"type", "SGD"}, {"params", Dict{{"lr", 1e-3}}}}}});
  return gannet::initialize(std::make_shared<OneImpl>(numel), {.config = config}).engine;
}

// Each rank's scaled gradient fits fp16, and so does their mean; their sum does not.
RANK_BODY(a_sum_of_halves) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 1, 2, 3}) {
    auto engine = engine_of(64, stage, 1024);
    engine->backward(engine->forward(torch::full({64}, 39.0)));  // 39,936 in fp16; four of them are beyond 65,504
    const auto done = engine->step();
    ranks::expect(done.applied, "stage " + std::to_string(stage) + ": " + done.reason);
    const double norm = *engine->get_global_grad_norm();
    ranks::expect(std::abs(norm - 39.0 * 8) < 0.2, "the norm is " + std::to_string(norm));
  }
}
TEST(Sums, OfHalvesDoNotOverflowWhereTheirMeanDoesNot) {
  ranks::expect_all_succeed(ranks::run_ranks("a_sum_of_halves", 4));
  ranks::expect_all_succeed(ranks::run_ranks("a_sum_of_halves", 3));
}

// Random gradients, summed in fp16 in the order of a ring: the error of the mean against fp64, ours beside dividing by W first.
TEST(Sums, OfHalvesAreNoWorseThanDividingFirst) {
  for (const int64_t ranks : {2, 3, 4, 7, 8}) {
    torch::manual_seed(ranks);
    const at::Tensor gradients = torch::randn({ranks, 100'000}).mul(8).to(at::kHalf);
    const at::Tensor exact = gradients.to(at::kDouble).mean(0);
    const auto summed = [&](double before, double after) {
      at::Tensor sum = gradients[0].to(at::kFloat).mul(before).to(at::kHalf);
      for (int64_t rank = 1; rank < ranks; ++rank)
        sum = (sum.to(at::kFloat) + gradients[rank].to(at::kFloat).mul(before).to(at::kHalf).to(at::kFloat)).to(at::kHalf);
      return ((sum.to(at::kDouble) * after - exact).norm() / exact.norm()).item<double>();
    };
    const double power = std::exp2(std::ceil(std::log2(static_cast<double>(ranks))));
    const double ours = summed(1 / power, power / static_cast<double>(ranks)),
                 theirs = summed(1.0 / static_cast<double>(ranks), 1);
    std::cout << ranks << " ranks: " << ours << " beside " << theirs << std::endl;
    EXPECT_LE(ours, theirs * 1.02);
  }
}

// The same gradients as bench/parity/fp16_sum.py gives to DeepSpeed: a part that all ranks share, and one of each rank's own.
at::Tensor gradient_of(int64_t rank) {
  constexpr int64_t kNumel = 100'000;
  torch::manual_seed(0);
  const at::Tensor shared = torch::randn({kNumel}) * 8;
  torch::manual_seed(1 + rank);
  return (shared + torch::randn({kNumel}) * 2).to(at::kHalf).to(at::kFloat);
}

RANK_BODY(fp16_sum) {
  auto world = gannet::test::world();
  const auto ranks = static_cast<int64_t>(world->size());
  const at::Tensor mine = gradient_of(world->rank());
  at::Tensor exact = at::zeros_like(mine, at::kDouble);
  double largest = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const at::Tensor one = gradient_of(rank);
    exact += one.to(at::kDouble) / static_cast<double>(ranks);
    largest = std::max(largest, one.abs().max().item<double>());
  }
  const auto trains_with = [&](int64_t stage, int64_t scale) {
    auto engine = engine_of(mine.numel(), stage, static_cast<double>(scale));
    engine->backward(engine->forward(mine));
    return engine->step().applied;
  };
  for (const int64_t stage : {1, 2}) {
    auto engine = engine_of(mine.numel(), stage, 1024);
    engine->backward(engine->forward(mine));
    const at::Tensor error = engine->full_gradient("w").to(at::kDouble) - exact;
    const double rms = (error.norm() / exact.norm()).item<double>();
    const double most = (error.abs().max() / exact.square().mean().sqrt()).item<double>();
    int64_t trains = 1, fails = 1 << 16;
    while (fails - trains > 1) (trains_with(stage, (trains + fails) / 2) ? trains : fails) = (trains + fails) / 2;
    if (world->rank() == 0)
      std::printf(
          "{\"program\": \"gannet\", \"ranks\": %lld, \"stage\": %lld, \"rms_error\": %.3e, \"largest_error\": %.3e, "
          "\"largest_static_scale\": %lld}\n",
          static_cast<long long>(ranks), static_cast<long long>(stage), rms, most, static_cast<long long>(trains));
    std::fflush(stdout);
    // fp16 has 11 bits: each of the ranks' additions rounds by at most 2^-11 of its result.
    ranks::expect(rms < std::exp2(-11), "the error is " + std::to_string(rms));
    // Values that fit fp16 on each rank train: 65,520 is the first number that rounds to infinity.
    ranks::expect(static_cast<double>(trains + 1) * largest >= 65'520 * (1 - 1e-6),
                  "stage " + std::to_string(stage) + " trains with a scale of " + std::to_string(trains) + " at most, " +
                      std::to_string(65'520 / largest) + " is what each rank's gradient allows");
  }
}
TEST(Sums, TrainWithEveryStaticScaleThatEachRanksGradientAllows) {
  for (const int ranks : {3, 4}) {
    const auto outcomes = ranks::run_ranks("fp16_sum", ranks);
    ranks::expect_all_succeed(outcomes);
    std::cout << outcomes[0].output.substr(outcomes[0].output.find("{\"program\""));
  }
}

}  // namespace
