// Adan, beside its formulas and beside a published package.
#include "optimizers/expected/adan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LoadedPlugin& adan_plugin() {
  static const LoadedPlugin plugin("optimizer_adan", "Adan");
  return plugin;
}

struct AdanSetting {
  double lr = 0.01, decay = 0, eps = 1e-8, betas[3] = {0.98, 0.92, 0.99};
  bool no_prox = false;

  Dict params() const {
    return Dict{
        {"lr", lr}, {"weight_decay", decay}, {"eps", eps}, {"betas", List{betas[0], betas[1], betas[2]}}, {"no_prox", no_prox}};
  }
  // Xie et al. 2022, algorithm 1; the state is m, n, v and the previous gradient.
  template <class T>
  PackageRule<T> rule() const {
    return [*this](PackageElement<T>& e, T g, uint64_t step) {
      auto& [m, n, v, previous] = e.state;
      const T b1 = T(betas[0]), b2 = T(betas[1]), b3 = T(betas[2]), difference = step == 1 ? 0 : g - previous;
      const auto bias = [&](int i) { return T(1 - std::pow(betas[i], static_cast<double>(step))); };
      m = b1 * m + T(1 - betas[0]) * g;
      v = b2 * v + T(1 - betas[1]) * difference;
      const T ahead = g + b2 * difference;
      n = b3 * n + T(1 - betas[2]) * ahead * ahead;
      const T u = (m / bias(0) + b2 * v / bias(1)) / (std::sqrt(n / bias(2)) + T(eps));
      // One factor in place of a division: its rounding acts in every step.
      e.p = no_prox ? T(1 - lr * decay) * e.p - T(lr) * u : (e.p - T(lr) * u) * T(1 / (1 + lr * decay));
      previous = g;
    };
  }
};
const std::vector<AdanSetting> kAdanSettings = {
    {}, {.decay = 0.1}, {.decay = 0.1, .eps = 1e-3, .betas = {0.9, 0.8, 0.95}, .no_prox = true}};

TEST(Adan, GivesTheNumbersOfAPackage) {
  for (const auto& expected : kExpectedAdan) {
    PackageCase wide(adan_plugin(), expected, GANNET_FLOAT64, kPackageTensors);
    PackageCase single(adan_plugin(), expected, GANNET_FLOAT32, kPackageTensors);
    wide.train();
    single.train();
    std::printf("Adan %s: off by %.2g in fp64, %.2g in fp32\n", expected.params, wide.off_fp64(), single.off_fp32());
    // A step changes an element by at most a few lr, in about ten roundings; 16 of them.
    EXPECT_LT(wide.off_fp64(), 16 * 10 * 0x1p-53) << expected.params;
    EXPECT_LT(single.off_fp32(), 1e-6) << expected.params;
  }
}

TEST(Adan, Follows200StepsOfAReference) {
  for (const auto& setting : kAdanSettings) {
    const auto off = [&]<class T>(uint32_t dtype, T) {
      TestHost host;
      GroupCase group(adan_plugin(), setting.params(), host, types_of(dtype), {{"weight", {17, 59}}});
      return distance_to_rule<T>(group, setting.rule<T>(), 200);
    };
    const double same = off(GANNET_FLOAT32, 0.0f), exact = off(GANNET_FLOAT32, 0.0), wide = off(GANNET_FLOAT64, 0.0);
    std::printf("Adan: %.2g off the reference in fp32, %.2g off that in fp64; in fp64 %.2g\n", same, exact, wide);
    // Each of 200 steps rounds the parameter, and its update by a few units of a number a hundred times smaller.
    EXPECT_LT(same, 1e-6);
    EXPECT_LT(exact, 200 * 0x1p-24);
    EXPECT_LT(wide, 200 * 0x1p-53);
  }
}

// Its previous gradient is then what memory held, which must not be read.
TEST(Adan, TheFirstStepHasNoDifferenceTerm) {
  TestHost host;
  GroupCase group(adan_plugin(), Dict{{"lr", 0.5}}, host, types_of(GANNET_FLOAT64), {{"weight", {5}}});
  ASSERT_THAT(group.state_names, ElementsAre("exp_avg", "exp_avg_sq", "exp_avg_diff", "previous_grad"));
  for (uint64_t i = 0; i < group.numel; ++i) {
    group.param.set(i, 1);
    group.grad.set(i, i % 2 == 0 ? 2 : -4);
    group.states[3].set(i, 1e6);
  }
  group.step();
  for (uint64_t i = 0; i < group.numel; ++i) {
    const double g = i % 2 == 0 ? 2 : -4;
    EXPECT_EQ(group.states[2].get(i), 0);
    EXPECT_EQ(group.states[3].get(i), g);
    // The corrected averages are g and g^2: u is g / (|g| + eps).
    EXPECT_NEAR(group.param.get(i), g > 0 ? 0.5 : 1.5, 1e-8);
  }
  for (uint64_t i = 0; i < group.numel; ++i) group.grad.set(i, i % 2 == 0 ? 3 : -4);
  group.step();
  EXPECT_NEAR(group.states[2].get(0), (1 - 0.92) * (3 - 2), 1e-15);
  EXPECT_EQ(group.states[2].get(1), 0);
}

TEST(Adan, BothDecaysShrinkAParameterWhoseGradientIsZero) {
  for (const bool no_prox : {false, true}) {
    TestHost host;
    GroupCase group(adan_plugin(), Dict{{"lr", 0.5}, {"weight_decay", 0.5}, {"no_prox", no_prox}}, host, types_of(GANNET_FLOAT64),
                    {{"weight", {3}}});
    for (uint64_t i = 0; i < group.numel; ++i) {
      group.param.set(i, 1);
      group.grad.set(i, 0);
    }
    group.step();
    for (uint64_t i = 0; i < group.numel; ++i) EXPECT_DOUBLE_EQ(group.param.get(i), no_prox ? 1 - 0.25 : 1 / 1.25);
  }
}

TEST(Adan, RefusesMaxGradNormWithASentence) {
  EXPECT_THAT(package_refusal(adan_plugin(), Dict{{"max_grad_norm", 1.0}}),
              HasSubstr("set 'gradient_clipping' at the top level"));
  EXPECT_EQ(package_refusal(adan_plugin(), Dict{{"max_grad_norm", nullptr}}), "created");
}

}  // namespace
}  // namespace gannet::test
