#include "optimizers/expected/lamb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>

#include "optimizers/lamb_reference.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LoadedPlugin& lamb() {
  static const LoadedPlugin plugin("optimizer_lamb", "Lamb");
  return plugin;
}

// More than one block of a tensor's sum, lengths that no SIMD width divides, one element.
std::vector<GroupCase::Tensor> shapes() { return {{"weight", {173, 211}}, {"bias", {173}}, {"scale", {1}}, {"head", {64}}}; }

TEST(Lamb, GivesTheNumbersOfDeepSpeedsFormulas) {
  for (const auto& expected : kExpectedLamb) {
    TestHost host;
    GroupCase group(lamb(),
                    Dict{{"lr", expected.lr},
                         {"betas", List{expected.beta1, expected.beta2}},
                         {"eps", expected.eps},
                         {"weight_decay", expected.weight_decay},
                         {"bias_correction", expected.bias_correction},
                         {"eps_inside_sqrt", expected.eps_inside_sqrt},
                         {"max_coeff", expected.max_coeff},
                         {"min_coeff", expected.min_coeff}},
                    host, kAllTypes.back(), {{"weight", {5}}});
    for (uint64_t i = 0; i < 5; ++i) group.param.set(i, kLambStart[i]);
    for (const auto& gradients : kLambGradients) {
      for (uint64_t i = 0; i < 5; ++i) group.grad.set(i, gradients[i]);
      group.step();
    }
    // Three steps in fp64, each of about ten roundings of numbers below 10.
    for (uint64_t i = 0; i < 5; ++i) EXPECT_NEAR(group.param.get(i), expected.param[i], 3 * 10 * 10 * 0x1p-53);
    EXPECT_EQ(group.states[2].get(0), static_cast<float>(expected.coeff));
  }
}

TEST(Lamb, Follows200StepsOfAReferenceInFp32) {
  TestHost host;
  const double lr = 0.01, decay = 0.1;
  GroupCase group(lamb(), Dict{{"lr", lr}, {"weight_decay", decay}}, host, kAllTypes[0], shapes());
  ASSERT_THAT(group.state_names, ElementsAre("exp_avg", "exp_avg_sq", "lamb_coeff"));
  EXPECT_EQ(group.capabilities, uint64_t{GANNET_OPTIMIZER_ELEMENTWISE});
  LambReference<float> same{.lr = lr, .decay = decay};
  LambReference<double> exact{.lr = lr, .decay = decay};
  same.begin(group);
  exact.begin(group);
  for (uint32_t step = 1; step <= 200; ++step) {
    group.random_gradients(step);
    group.step();
    same.step(group);
    exact.step(group);
  }
  const double from_same = relative_distance(group.values(), same.values());
  const double from_exact = relative_distance(group.values(), exact.values());
  std::printf("200 steps: %.2g from the reference in fp32, %.2g from that in fp64\n", from_same, from_exact);
  EXPECT_LT(from_same, 1e-6);
  // Each of 200 steps rounds the parameter once, and its update by a few units of a number a
  // hundred times smaller.
  EXPECT_LT(from_exact, 200 * 0x1p-24);
  EXPECT_GT(relative_distance(group.values(), std::vector<double>(group.numel, 1)), 0.1);
}

TEST(Lamb, FollowsTheReferenceInEveryModeAndType) {
  for (const auto& types : kAllTypes) {
    for (int mode = 0; mode < 8; ++mode) {
      const bool inside = mode & 1, correct = mode & 2, clamps = mode & 4;
      const double decay = 0.2, max_coeff = clamps ? 0.5 : 10;
      TestHost host;
      GroupCase group(lamb(),
                      Dict{{"lr", 0.01},
                           {"weight_decay", decay},
                           {"eps", 1e-3},
                           {"eps_inside_sqrt", inside},
                           {"bias_correction", correct},
                           {"max_coeff", max_coeff}},
                      host, types, {{"weight", {9, 11}}, {"bias", {1}}, {"head", {33}}});
      group.grad_scale = 0.25;
      LambReference<double> exact{.lr = 0.01, .decay = decay, .eps = 1e-3, .max_coeff = max_coeff};
      LambReference<float> same{.lr = 0.01, .decay = decay, .eps = 1e-3, .max_coeff = max_coeff};
      exact.eps_inside_sqrt = same.eps_inside_sqrt = inside;
      exact.bias_correction = same.bias_correction = correct;
      exact.begin(group);
      same.begin(group);
      for (uint32_t step = 1; step <= 20; ++step) {
        group.random_gradients(step);
        group.step();
        exact.step(group);
        same.step(group);
      }
      const bool wide = types.param == GANNET_FLOAT64;
      ASSERT_LT(relative_distance(group.values(), wide ? exact.values() : same.values()), wide ? 1e-14 : 1e-6) << mode;
      for (size_t t = 0; t < group.tensors.size(); ++t)
        ASSERT_NEAR(group.states[2].get(t), wide ? exact.coeffs[t] : same.coeffs[t], 1e-6) << mode;
      if (types.out == GANNET_DTYPE_NONE) continue;
      Buffer rounded(types.out, group.numel);
      for (uint64_t i = 0; i < group.numel; ++i) rounded.set(i, group.param.get(i));
      ASSERT_TRUE(group.out == rounded);
    }
  }
}

TEST(Lamb, AnyCutIntoPiecesGivesTheWhole) {
  for (const auto& types : {kAllTypes[0], kAllTypes[4], kAllTypes.back()}) {
    TestHost host;
    const Dict params{{"lr", 0.01}, {"weight_decay", 0.1}};
    GroupCase whole(lamb(), params, host, types, shapes());
    std::vector<uint64_t> every_seventh = {0}, pages = {0};
    while (every_seventh.back() + 997 < whole.numel) every_seventh.push_back(every_seventh.back() + 997);
    while (pages.back() + 16384 < whole.numel) pages.push_back(pages.back() + 16384);
    const uint64_t end = whole.numel;
    every_seventh.push_back(end);
    pages.push_back(end);
    // Within a tensor, at its end, so that a piece begins with one element of a tensor, and of a tensor of one element.
    const uint64_t weight = whole.tensors[0].numel, scale = whole.tensors[2].offset;
    for (const auto& ends : std::vector<std::vector<uint64_t>>{
             {0, 1, end}, {0, weight - 1, end}, {0, weight, scale, scale + 1, end}, every_seventh, pages}) {
      GroupCase complete(lamb(), params, host, types, shapes()), cut(lamb(), params, host, types, shapes());
      for (uint32_t step = 1; step <= 5; ++step) {
        complete.random_gradients(step);
        cut.random_gradients(step);
        complete.step();
        cut.step(ends);
      }
      EXPECT_LT(relative_distance(cut.values(), complete.values()), types.param == GANNET_FLOAT64 ? 1e-14 : 1e-6);
      EXPECT_NEAR(cut.sum(0, 1), complete.sum(0, 1), 1e-12 * complete.sum(0, 1));
    }
  }
}

TEST(Lamb, TheResultDoesNotDependOnTheNumberOfThreads) {
  for (const auto& types : {kAllTypes[0], kAllTypes[4], kAllTypes.back()}) {
    auto run = [&](uint64_t pieces) {
      TestHost host;
      host.pieces = pieces;
      auto group = std::make_unique<GroupCase>(lamb(), Dict{{"lr", 0.01}, {"weight_decay", 0.1}}, host, types, shapes());
      for (uint32_t step = 1; step <= 3; ++step) {
        group->random_gradients(step);
        group->step();
      }
      return group;
    };
    const auto alone = run(1);
    for (const uint64_t pieces : {0, 2, 3, 5, 64}) EXPECT_TRUE(run(pieces)->same_result(*alone)) << pieces;
  }
}

// Fused multiply-add is the only thing that a SIMD target may lack.
TEST(Lamb, TheResultDoesNotDependOnTheWidthOfTheSimd) {
  auto run = [&](int64_t target) {
    hwy::GetChosenTarget().Update(target);
    TestHost host;
    GroupCase group(lamb(), Dict{{"lr", 0.01}, {"weight_decay", 0.1}}, host, kAllTypes[4], shapes());
    for (uint32_t step = 1; step <= 3; ++step) {
      group.random_gradients(step);
      group.step();
    }
    hwy::GetChosenTarget().DeInit();
    return group.values();
  };
  const auto best = run(HWY_AVX2);
  if (hwy::SupportedTargets() & HWY_AVX3) EXPECT_EQ(run(HWY_AVX3), best);
  for (const int64_t target : {int64_t{0}, int64_t{HWY_SSE4}}) EXPECT_LT(relative_distance(run(target), best), 1e-6) << target;
}

TEST(Lamb, EveryLengthIsSummedWhole) {
  TestHost host;
  for (int64_t length = 1; length <= 70; ++length) {
    GroupCase group(lamb(), Dict{{"weight_decay", 0.5}}, host, kAllTypes[0],
                    {{"before", {3}}, {"weight", {length}}, {"after", {2}}});
    LambReference<float> reference{.decay = 0.5};
    reference.begin(group);
    const auto before = group.values();
    group.random_gradients(3);
    group.step();
    reference.step(group);
    double weights = 0, updates = 0;
    for (uint64_t i = 3; i < group.numel - 2; ++i) {
      weights += before[i] * before[i];
      updates += double{reference.u[i]} * double{reference.u[i]};
    }
    ASSERT_NEAR(group.sum(1, 0), weights, 1e-12 * weights) << length;
    ASSERT_NEAR(group.sum(1, 1), updates, 1e-6 * updates) << length;
  }
}

TEST(Lamb, ATensorsSumDoesNotDependOnWhatLiesBeforeIt) {
  TestHost host;
  GroupCase alone(lamb(), {}, host, kAllTypes[0], {{"weight", {50'000}}});
  GroupCase behind(lamb(), {}, host, kAllTypes[0], {{"before", {7}}, {"weight", {50'000}}});
  alone.random_gradients(3);
  for (uint64_t i = 0; i < alone.numel; ++i) {
    behind.param.set(7 + i, alone.param.get(i));
    behind.grad.set(7 + i, alone.grad.get(i));
  }
  alone.step();
  behind.step();
  EXPECT_EQ(behind.sum(1, 0), alone.sum(0, 0));
  EXPECT_EQ(behind.sum(1, 1), alone.sum(0, 1));
}

TEST(Lamb, TensorsOfZerosHaveTheRatioOne) {
  TestHost host;
  GroupCase group(lamb(), Dict{{"lr", 0.1}}, host, kAllTypes[0], {{"weight", {40}}, {"still", {40}}});
  for (uint64_t i = 0; i < group.numel; ++i) {
    if (i < 40) group.param.set(i, 0);
    group.grad.set(i, i < 40 ? 1 : 0);
  }
  const double still = group.param.get(50);
  group.step();
  EXPECT_EQ(group.states[2].get(0), 1);
  EXPECT_EQ(group.states[2].get(1), 1);
  EXPECT_NEAR(group.param.get(0), -0.1, 1e-5);  // Adam's first step: lr sqrt(bc2)/bc1 m/sqrt(v) = lr
  EXPECT_EQ(group.param.get(50), still);
}

TEST(Lamb, WritesNothingBetweenTensors) {
  for (const auto& types : kAllTypes) {
    TestHost host;
    GroupCase group(lamb(), Dict{{"lr", 0.1}}, host, types, {{"a", {37}}, {"b", {1}}, {"c", {20}}}, 5);
    const auto before = group.values();
    group.random_gradients(4);
    group.step();
    for (uint64_t i = 0; i < group.numel; ++i) {
      const bool is_gap = (i >= 37 && i < 42) || (i >= 43 && i < 48);
      ASSERT_EQ(group.param.get(i) == before[i], is_gap) << i;
      ASSERT_EQ(group.states[0].get(i) == 0, is_gap) << i;
      if (types.out != GANNET_DTYPE_NONE) ASSERT_EQ(group.out.get(i) == 0, is_gap) << i;
    }
  }
}

TEST(Lamb, ANotANumberReachesTheWholeTensorAndNoOther) {
  TestHost host;
  GroupCase group(lamb(), {}, host, kAllTypes[0], {{"bad", {30}}, {"good", {30}}});
  group.random_gradients(4);
  group.grad.set(11, std::nan(""));
  group.step();
  for (uint64_t i = 0; i < 60; ++i) EXPECT_EQ(std::isnan(group.param.get(i)), i < 30) << i;
  EXPECT_TRUE(std::isnan(group.states[2].get(0)));
}

TEST(Lamb, KeepsTheRatioOfATensorThatHasNoGradientInAStep) {
  TestHost host;
  GroupCase group(lamb(), Dict{{"lr", 0.1}}, host, kAllTypes[0], {{"a", {30}}, {"b", {30}}});
  group.random_gradients(4);
  group.step();
  const double ratio = group.states[2].get(1);
  EXPECT_NE(ratio, 1);
  group.step({0, 30});
  EXPECT_EQ(group.states[2].get(1), ratio);
}

TEST(Lamb, UsesTheHyperparametersOfTheCallNotThoseOfTheConfig) {
  TestHost host;
  GroupCase configured(lamb(), Dict{{"lr", 0.5}, {"betas", List{0.8, 0.95}}, {"weight_decay", 0.2}}, host, kAllTypes[0],
                       shapes());
  GroupCase changed(lamb(), {}, host, kAllTypes[0], shapes());
  EXPECT_THAT(configured.optimizer.params.hyper, ElementsAre(0.5, 0.8, 0.95, 0.2));  // the order of declaration
  changed.optimizer.params.hyper = configured.optimizer.params.hyper;
  for (GroupCase* group : {&configured, &changed}) {
    group->random_gradients(2);
    group->step();
  }
  EXPECT_TRUE(configured.same_result(changed));
}

TEST(Lamb, TakesTheTenCombinationsOfTypesAndNoOther) {
  TestHost host;
  OptimizerUnderTest optimizer(lamb(), {}, host);
  int taken = 0;
  for (uint32_t param = 0; param <= GANNET_BOOL; ++param)
    for (uint32_t grad = 0; grad <= GANNET_BOOL; ++grad)
      for (uint32_t out = 0; out <= GANNET_BOOL; ++out) taken += optimizer.supports(param, grad, out);
  EXPECT_EQ(taken, static_cast<int>(kAllTypes.size()));
  for (const auto& types : kAllTypes) EXPECT_TRUE(optimizer.supports(types.param, types.grad, types.out));
}

std::string refusal(const Dict& params) {
  TestHost host;
  try {
    OptimizerUnderTest optimizer(lamb(), params, host);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "created";
}

TEST(Lamb, RefusesWhatItDoesNotDoWithTheReason) {
  EXPECT_THAT(refusal(Dict{{"amsgrad", true}}), HasSubstr("'amsgrad' is true, but LAMB has no AMSGrad variant"));
  EXPECT_THAT(refusal(Dict{{"max_grad_norm", 1.0}}), HasSubstr("set 'gradient_clipping' at the top level"));
  EXPECT_THAT(refusal(Dict{{"min_coeff", 2.0}, {"max_coeff", 1.0}}), HasSubstr("'min_coeff' is above 'max_coeff'"));
  EXPECT_EQ(refusal(Dict{{"max_grad_norm", nullptr}}), "created");
}

TEST(Lamb, ConvergesOnAQuadratic) {
  TestHost host;
  GroupCase group(lamb(), Dict{{"lr", 0.05}}, host, {GANNET_FLOAT32, GANNET_FLOAT32, GANNET_BFLOAT16}, {{"weight", {10}}});
  for (uint64_t step = 1; step <= 1500; ++step) {
    group.optimizer.params.hyper[0] = 0.05 * (1 - static_cast<double>(step) / 1500);
    for (uint64_t i = 0; i < group.numel; ++i)
      group.grad.set(i, static_cast<double>(i + 1) * (group.param.get(i) - static_cast<double>(i)));
    group.step();
  }
  for (uint64_t i = 0; i < group.numel; ++i) EXPECT_NEAR(group.param.get(i), static_cast<double>(i), 1e-2);
}

}  // namespace
}  // namespace gannet::test
