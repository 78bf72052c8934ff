// LARS, beside its formulas and beside a published package; its sums over whole tensors.
#include "optimizers/expected/lars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "optimizers/package_engine.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LoadedPlugin& lars_plugin() {
  static const LoadedPlugin plugin("optimizer_lars", "LARS");
  return plugin;
}

// More than one block of a tensor's sum, lengths that no SIMD width divides, a tensor without a ratio.
std::vector<GroupCase::Tensor> lars_shapes() { return {{"weight", {97, 173}}, {"bias", {97}}, {"kernel", {3, 5, 7}}}; }

// You et al. 2017, algorithm 1, over the tensors of a group.
template <class T>
struct LarsReference {
  double lr = 0.01, momentum = 0.9, decay = 0, trust = 0.001, dampening = 0;
  bool nesterov = false;
  std::vector<T> p, b;

  Dict params() const {
    return Dict{{"lr", lr},
                {"momentum", momentum},
                {"weight_decay", decay},
                {"trust_coefficient", trust},
                {"dampening", dampening},
                {"nesterov", nesterov}};
  }
  void begin(const GroupCase& group) {
    for (const double value : group.values()) p.push_back(static_cast<T>(value));
    b.assign(p.size(), 0);
  }
  void step(const GroupCase& group) {
    for (const auto& tensor : group.tensors) {
      double weights = 0, gradients = 0;
      const bool is_adapted = tensor.shape.size() >= 2;
      const uint64_t end = tensor.offset + tensor.numel;
      for (uint64_t i = tensor.offset; i < end; ++i) {
        weights += double{p[i]} * double{p[i]};
        gradients += group.grad.get(i) * group.grad.get(i);
      }
      const double w = std::sqrt(weights), divisor = std::sqrt(gradients) + decay * w;
      const T ratio = static_cast<T>(is_adapted && w > 0 && divisor > 0 ? trust * w / divisor : 1);
      for (uint64_t i = tensor.offset; i < end; ++i) {
        const T g = static_cast<T>(group.grad.get(i)), u = is_adapted ? ratio * (g + T(decay) * p[i]) : g;
        b[i] = T(momentum) * b[i] + T(1 - dampening) * u;
        p[i] -= T(lr) * (nesterov ? u + T(momentum) * b[i] : b[i]);
      }
    }
  }
  std::vector<double> values() const { return {p.begin(), p.end()}; }
};

TEST(Lars, GivesTheNumbersOfAPackage) {
  for (const auto& expected : kExpectedLars) {
    PackageCase wide(lars_plugin(), expected, GANNET_FLOAT64, kPackageTensors);
    PackageCase single(lars_plugin(), expected, GANNET_FLOAT32, kPackageTensors);
    PackageEngine trained("LARS", expected);
    wide.train();
    single.train();
    trained.train();
    std::printf("LARS %s: off by %.2g in fp64, %.2g in fp32\n", expected.params, wide.off_fp64(), single.off_fp32());
    // 16 steps of about ten roundings each.
    EXPECT_LT(wide.off_fp64(), 16 * 10 * 0x1p-53) << expected.params;
    EXPECT_LT(single.off_fp32(), 1e-6) << expected.params;
    EXPECT_LT(relative_distance(trained.values(), values_of(expected.in_fp32)), 1e-6) << expected.params;
  }
}

TEST(Lars, Follows100StepsOfAReference) {
  const LarsReference<double> settings[] = {
      {.trust = 0.5},
      {.decay = 0.1, .trust = 0.5, .dampening = 0.25},
      {.momentum = 0.8, .decay = 0.1, .trust = 0.1, .nesterov = true},
  };
  for (const auto& setting : settings) {
    const auto off = [&]<class T>(uint32_t dtype, T) {
      TestHost host;
      GroupCase group(lars_plugin(), setting.params(), host, types_of(dtype),
                      {{"weight", {17, 59}}, {"bias", {17}}, {"kernel", {3, 5, 7}}});
      LarsReference<T> reference{setting.lr, setting.momentum, setting.decay, setting.trust, setting.dampening, setting.nesterov};
      reference.begin(group);
      std::mt19937 random(11);
      for (int step = 0; step < 100; ++step) {
        set_pulling_gradients(group, random);
        reference.step(group);
        group.step();
      }
      return relative_distance(group.values(), reference.values());
    };
    const double same = off(GANNET_FLOAT32, 0.0f), exact = off(GANNET_FLOAT32, 0.0), wide = off(GANNET_FLOAT64, 0.0);
    std::printf("LARS: %.2g off the reference in fp32, %.2g off that in fp64; in fp64 %.2g\n", same, exact, wide);
    // Each of 100 steps rounds the parameter, and its update by a few units of a number many times smaller.
    EXPECT_LT(same, 1e-6);
    EXPECT_LT(exact, 100 * 0x1p-24);
    EXPECT_LT(wide, 100 * 0x1p-53);
  }
}

TEST(Lars, AnyCutIntoPiecesGivesTheWhole) {
  const Dict params{{"lr", 0.01}, {"weight_decay", 0.1}, {"trust_coefficient", 0.5}};
  for (const auto& types : {kAllTypes[0], kAllTypes[4], kAllTypes.back()}) {
    TestHost host;
    const auto run = [&](const std::vector<uint64_t>& ends) {
      auto group = std::make_unique<GroupCase>(lars_plugin(), params, host, types, lars_shapes());
      for (uint32_t step = 1; step <= 5; ++step) {
        group->random_gradients(step);
        group->step(ends);
      }
      return group;
    };
    const auto whole = run({});
    const uint64_t end = whole->numel, weight = whole->tensors[0].numel;
    std::vector<uint64_t> every_997 = {0};
    while (every_997.back() + 997 < end) every_997.push_back(every_997.back() + 997);
    every_997.push_back(end);
    for (const auto& ends : std::vector<std::vector<uint64_t>>{{0, 1, end}, {0, weight - 1, weight + 1, end}, every_997})
      EXPECT_LT(relative_distance(run(ends)->values(), whole->values()), types.param == GANNET_FLOAT64 ? 1e-14 : 1e-6);
    // A block of the first tensor's sums ends there: these pieces add the same numbers in the same order.
    EXPECT_TRUE(run({0, 16384, end})->same_result(*whole));
    EXPECT_TRUE(run({})->same_result(*whole)) << "it is not repeatable";
  }
}

TEST(Lars, TheResultDoesNotDependOnTheNumberOfThreads) {
  for (const auto& types : {kAllTypes[0], kAllTypes[4], kAllTypes.back()}) {
    const auto run = [&](uint64_t pieces) {
      TestHost host;
      host.pieces = pieces;
      auto group =
          std::make_unique<GroupCase>(lars_plugin(), Dict{{"lr", 0.01}, {"weight_decay", 0.1}}, host, types, lars_shapes());
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

TEST(Lars, ATensorOfZerosHasTheRatioOne) {
  TestHost host;
  GroupCase group(lars_plugin(), Dict{{"lr", 0.5}, {"weight_decay", 0.1}}, host, types_of(GANNET_FLOAT64), {{"weight", {5, 7}}});
  for (uint64_t i = 0; i < group.numel; ++i) {
    group.param.set(i, 0);
    group.grad.set(i, 2);
  }
  group.step();
  for (uint64_t i = 0; i < group.numel; ++i) EXPECT_EQ(group.param.get(i), -0.5 * 2);
}

TEST(Lars, GradientsOfZerosMoveATensorByItsDecayAlone) {
  for (const double decay : {0.0, 0.5}) {
    TestHost host;
    GroupCase group(lars_plugin(), Dict{{"lr", 0.5}, {"weight_decay", decay}, {"trust_coefficient", 0.25}}, host,
                    types_of(GANNET_FLOAT64), {{"weight", {5, 7}}});
    for (uint64_t i = 0; i < group.numel; ++i) {
      group.param.set(i, 1);
      group.grad.set(i, 0);
    }
    group.step();
    // The ratio is trust |p| / (decay |p|), of decay p: the step is lr trust p.
    for (uint64_t i = 0; i < group.numel; ++i) {
      if (decay == 0) EXPECT_EQ(group.param.get(i), 1);
      if (decay != 0) EXPECT_NEAR(group.param.get(i), 1 - 0.5 * 0.25, 1e-15);
    }
  }
}

TEST(Lars, ATensorOfOneDimensionIsTrainedByPlainMomentum) {
  TestHost host;
  GroupCase group(lars_plugin(), Dict{{"lr", 0.5}, {"momentum", 0.5}, {"weight_decay", 0.1}}, host, types_of(GANNET_FLOAT64),
                  {{"bias", {9}}, {"scalar", {}}});
  ASSERT_THAT(group.state_names, ElementsAre("momentum_buffer"));
  for (uint64_t i = 0; i < group.numel; ++i) {
    group.param.set(i, 8);
    group.grad.set(i, 2);
  }
  group.step();
  for (uint64_t i = 0; i < group.numel; ++i) EXPECT_EQ(group.param.get(i), 8 - 0.5 * 2);
  group.step();
  for (uint64_t i = 0; i < group.numel; ++i) EXPECT_EQ(group.param.get(i), 8 - 0.5 * 2 - 0.5 * (0.5 * 2 + 2));
}

// A matrix's step is as long whatever its gradient's scale is.
TEST(Lars, AMatrixsStepIsIndependentOfItsGradientsScale) {
  TestHost host;
  const auto run = [&](double scale) {
    GroupCase group(lars_plugin(), Dict{{"lr", 0.5}, {"trust_coefficient", 0.1}}, host, types_of(GANNET_FLOAT64),
                    {{"weight", {4, 3}}});
    group.random_gradients(2);
    for (uint64_t i = 0; i < group.numel; ++i) group.grad.set(i, scale * group.grad.get(i));
    group.step();
    return group.values();
  };
  EXPECT_LT(relative_distance(run(1000), run(1)), 1e-15);
}

TEST(Lars, RefusesMaxGradNormWithASentence) {
  EXPECT_THAT(package_refusal(lars_plugin(), Dict{{"max_grad_norm", 1.0}}),
              HasSubstr("set 'gradient_clipping' at the top level"));
  EXPECT_EQ(package_refusal(lars_plugin(), Dict{{"max_grad_norm", nullptr}}), "created");
}

}  // namespace
}  // namespace gannet::test
