// AdaBelief, beside its formulas and beside its authors' package.
#include "optimizers/expected/adabelief.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LoadedPlugin& adabelief_plugin() {
  static const LoadedPlugin plugin("optimizer_adabelief", "AdaBelief");
  return plugin;
}

struct AdaBeliefSetting {
  double lr = 0.01, decay = 0, eps = 1e-16, beta1 = 0.9, beta2 = 0.999;
  bool decouple = true, fixed = false, rectify = true, to_sgd = true;

  Dict params() const {
    return Dict{{"lr", lr},
                {"weight_decay", decay},
                {"eps", eps},
                {"betas", List{beta1, beta2}},
                {"weight_decouple", decouple},
                {"fixed_decay", fixed},
                {"rectify", rectify},
                {"degenerated_to_sgd", to_sgd}};
  }
  // Zhuang et al. 2020, algorithm 2, rectified as by Liu et al. 2019, algorithm 2; the state is m and v.
  template <class T>
  PackageRule<T> rule() const {
    return [*this](PackageElement<T>& e, T gradient, uint64_t step) {
      auto& [m, v, unused0, unused1] = e.state;
      const double t = static_cast<double>(step), power = std::pow(beta2, t), bias1 = 1 - std::pow(beta1, t), bias2 = 1 - power;
      const T g = decouple ? gradient : gradient + T(decay) * e.p;
      if (decouple) e.p *= T(1 - (fixed ? decay : lr * decay));
      m = T(beta1) * m + T(1 - beta1) * g;
      v = T(beta2) * v + T(1 - beta2) * (g - m) * (g - m) + T(eps);
      if (!rectify) {
        e.p -= T(lr / bias1) * m / (std::sqrt(v) / T(std::sqrt(bias2)) + T(eps));
        return;
      }
      const double most = 2 / (1 - beta2) - 1, n = most - 2 * t * power / bias2;
      if (n >= 5) {
        const double r = std::sqrt((n - 4) * (n - 2) * most / ((most - 4) * (most - 2) * n));
        e.p -= T(lr / bias1 * r * std::sqrt(bias2)) * m / (std::sqrt(v) + T(eps));
      } else if (to_sgd) {
        e.p -= T(lr / bias1) * m;
      }
    };
  }
};
const std::vector<AdaBeliefSetting> kAdaBeliefSettings = {
    {},
    {.decay = 0.1, .beta1 = 0.8, .beta2 = 0.95, .rectify = false},
    {.decay = 0.1, .eps = 1e-8, .beta2 = 0.9, .decouple = false, .to_sgd = false},
    {.decay = 0.001, .fixed = true}};

TEST(AdaBelief, GivesTheNumbersOfItsAuthorsPackage) {
  for (const auto& expected : kExpectedAdaBelief) {
    PackageCase wide(adabelief_plugin(), expected, GANNET_FLOAT64, kPackageTensors);
    PackageCase single(adabelief_plugin(), expected, GANNET_FLOAT32, kPackageTensors);
    wide.train();
    single.train();
    std::printf("AdaBelief %s: off by %.2g in fp64, %.2g in fp32\n", expected.params, wide.off_fp64(), single.off_fp32());
    EXPECT_LT(wide.off_fp64(), 16 * 10 * 0x1p-53) << expected.params;
    EXPECT_LT(single.off_fp32(), 1e-6) << expected.params;
  }
}

TEST(AdaBelief, Follows200StepsOfAReference) {
  for (const auto& setting : kAdaBeliefSettings) {
    const auto off = [&]<class T>(uint32_t dtype, T) {
      TestHost host;
      GroupCase group(adabelief_plugin(), setting.params(), host, types_of(dtype), {{"weight", {17, 59}}});
      return distance_to_rule<T>(group, setting.rule<T>(), 200);
    };
    const double same = off(GANNET_FLOAT32, 0.0f), exact = off(GANNET_FLOAT32, 0.0), wide = off(GANNET_FLOAT64, 0.0);
    std::printf("AdaBelief: %.2g off the reference in fp32, %.2g off that in fp64; in fp64 %.2g\n", same, exact, wide);
    // Each of 200 steps rounds the parameter, and its update by a few units of a number a hundred times smaller.
    EXPECT_LT(same, 1e-6);
    EXPECT_LT(exact, 200 * 0x1p-24);
    EXPECT_LT(wide, 200 * 0x1p-53);
  }
}

// With beta2 0.999, n is 4.996 in step 5 and 5.994 in step 6.
TEST(AdaBelief, TheFirstFiveRectifiedStepsAreMomentumStepsOrNone) {
  for (const bool to_sgd : {true, false}) {
    TestHost host;
    GroupCase group(adabelief_plugin(), Dict{{"lr", 0.5}, {"degenerated_to_sgd", to_sgd}}, host, types_of(GANNET_FLOAT64),
                    {{"weight", {4}}});
    ASSERT_THAT(group.state_names, ElementsAre("exp_avg", "exp_avg_var"));
    for (uint64_t i = 0; i < group.numel; ++i) {
      group.param.set(i, 1);
      group.grad.set(i, 0.125);
    }
    for (int step = 1; step <= 5; ++step) {
      group.step();
      // The corrected average of equal gradients is the gradient.
      for (uint64_t i = 0; i < group.numel; ++i)
        EXPECT_NEAR(group.param.get(i), to_sgd ? 1 - 0.5 * 0.125 * step : 1, 1e-15) << "step " << step;
    }
    const double before = group.param.get(0);
    group.step();
    EXPECT_GT(before - group.param.get(0), 1e-3);
    EXPECT_GT(std::abs(before - group.param.get(0) - 0.5 * 0.125), 1e-3) << "it is no momentum step";
  }
}

TEST(AdaBelief, FixedDecayIsNotMultipliedByTheLearningRate) {
  for (const bool fixed : {false, true}) {
    TestHost host;
    GroupCase group(adabelief_plugin(), Dict{{"lr", 0.5}, {"weight_decay", 0.5}, {"fixed_decay", fixed}}, host,
                    types_of(GANNET_FLOAT64), {{"weight", {3}}});
    for (uint64_t i = 0; i < group.numel; ++i) {
      group.param.set(i, 1);
      group.grad.set(i, 0);
    }
    group.step();
    for (uint64_t i = 0; i < group.numel; ++i) EXPECT_EQ(group.param.get(i), fixed ? 0.5 : 0.75);
  }
}

TEST(AdaBelief, RefusesWhatItDoesNotDoWithASentence) {
  EXPECT_THAT(package_refusal(adabelief_plugin(), Dict{{"amsgrad", true}}),
              HasSubstr("'amsgrad' is true, but this AdaBelief has no AMSGrad variant: remove it"));
  EXPECT_THAT(package_refusal(adabelief_plugin(), Dict{{"max_grad_norm", 1.0}}),
              HasSubstr("set 'gradient_clipping' at the top level"));
  EXPECT_EQ(package_refusal(adabelief_plugin(), Dict{{"amsgrad", false}}), "created");
}

}  // namespace
}  // namespace gannet::test
