// Prodigy, beside its formulas and beside its authors' package; its estimate, which all tensors and groups share.
#include "optimizers/expected/prodigy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "optimizers/package_engine.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kProdigyEstimate = 4;  // the state "d"

const LoadedPlugin& prodigy_plugin() {
  static const LoadedPlugin plugin("optimizer_prodigy", "Prodigy");
  return plugin;
}

// Mishchenko, Defazio 2023, algorithm 4, over a model that is one tensor. Sums of products are rounded once, as by the plugin:
// the estimate makes another rounding of the first steps a thousandfold one of the later ones.
template <class T>
struct ProdigyReference {
  double lr = 1, decay = 0, d0 = 1e-6, coef = 1, growth = std::numeric_limits<double>::infinity();
  bool decouple = true, correct = false, safeguard = false;
  double d = 0, d_max = 0, numerator = 0;
  int k = 0;
  std::vector<T> p, p0, m, v, s;

  Dict params() const {
    Dict all{{"lr", lr},
             {"weight_decay", decay},
             {"d0", d0},
             {"d_coef", coef},
             {"decouple", decouple},
             {"use_bias_correction", correct},
             {"safeguard_warmup", safeguard}};
    if (std::isfinite(growth)) all["growth_rate"] = growth;
    return all;
  }
  void begin(const GroupCase& group) {
    for (const double value : group.values()) p.push_back(static_cast<T>(value));
    p0 = p;
    m = v = s = std::vector<T>(p.size(), 0);
    d = d_max = d0;
  }
  void step(const GroupCase& group) {
    const double beta1 = 0.9, beta2 = 0.999, beta3 = std::sqrt(beta2);
    const double bias = correct ? std::sqrt(1 - std::pow(beta2, k + 1)) / (1 - std::pow(beta1, k + 1)) : 1, rate = d * lr * bias;
    double progress = 0, distance = 0;
    std::vector<T> g(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      g[i] = std::fma(decouple ? 0 : T(decay), p[i], static_cast<T>(group.grad.get(i)));
      progress += double{g[i]} * double{p0[i] - p[i]};
      m[i] = std::fma(T(d * (1 - beta1)), g[i], T(beta1) * m[i]);
      v[i] = std::fma(T(d * d * (1 - beta2)), g[i] * g[i], T(beta2) * v[i]);
      s[i] = std::fma(T(d / d0 * (safeguard ? d : rate)), g[i], T(beta3) * s[i]);
      distance += std::abs(double{s[i]});
    }
    numerator = beta3 * numerator + d / d0 * rate * progress;
    const double found = coef * numerator / distance;
    d_max = std::max(d_max, found);
    d = std::min(d_max, growth * (d == d0 ? std::max(d, found) : d));
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = std::fma(T(-rate), m[i] / (std::sqrt(v[i]) + T(d * 1e-8)), T(1 - (decouple ? rate * decay : 0)) * p[i]);
    }
    ++k;
  }
  std::vector<double> values() const { return {p.begin(), p.end()}; }
};

// An estimate is a ratio of sums of gradients times p0 - p, whose rounding is one of p: relative to the first step, of size d0,
// it is the type's epsilon times |p| / d0. Sixteen steps later, d and the way to p have that error at most.
double estimate_error(double d0, double epsilon) { return 2 * epsilon / d0; }

TEST(Prodigy, GivesTheNumbersAndTheEstimateOfItsAuthorsPackage) {
  for (const auto& expected : kExpectedProdigy) {
    const Dict params = config::parse_value(expected.params).as_dict();
    const double d0 = params.find("d0") ? params.find("d0")->as_number() : 1e-6;
    PackageCase wide(prodigy_plugin(), expected, GANNET_FLOAT64, kPackageModel);
    wide.train();
    const double off_d = std::abs(wide.group.states[kProdigyEstimate].get(0) / expected.d - 1);
    EXPECT_EQ(wide.host.metrics.at("d"), wide.group.states[kProdigyEstimate].get(0));
    std::printf("Prodigy %s: off by %.2g, d by %.2g in fp64\n", expected.params, wide.off_fp64(), off_d);
    EXPECT_LT(off_d, estimate_error(d0, 0x1p-53)) << expected.params;
    EXPECT_LT(wide.off_fp64(), estimate_error(d0, 0x1p-53)) << expected.params;
    if (!has_values(expected.in_fp32)) continue;
    PackageCase single(prodigy_plugin(), expected, GANNET_FLOAT32, kPackageModel);
    single.train();
    std::printf("  in fp32 off by %.2g, d by %.2g\n", single.off_fp32(),
                std::abs(single.group.states[kProdigyEstimate].get(0) / expected.d - 1));
    EXPECT_LT(single.off_fp32(), 1e-6) << expected.params;
    EXPECT_NEAR(single.group.states[kProdigyEstimate].get(0) / expected.d, 1, estimate_error(d0, 0x1p-24)) << expected.params;
  }
}

// Several tensors, and a group of its own for one of them, share one estimate.
TEST(Prodigy, TensorsAndGroupsOfAnEngineShareTheEstimate) {
  for (const auto& expected : kExpectedProdigy) {
    if (!has_values(expected.in_fp32)) continue;
    const Value decay = [&] {
      const Dict params = config::parse_value(expected.params).as_dict();
      return params.find("weight_decay") ? *params.find("weight_decay") : Value(0.0);
    }();
    for (const Dict& groups : {Dict{}, Dict{{"param_groups", List{Dict{{"match", List{"p1"}}, {"weight_decay", decay}}}}}}) {
      PackageEngine trained("Prodigy", expected, groups);
      trained.train();
      EXPECT_LT(relative_distance(trained.values(), values_of(expected.in_fp32)), 1e-6) << expected.params;
    }
  }
}

TEST(Prodigy, Follows100StepsOfAReference) {
  const ProdigyReference<double> settings[] = {
      {.d0 = 1e-3},
      {.decay = 0.1, .d0 = 1e-3, .correct = true, .safeguard = true},
      {.lr = 0.5, .decay = 0.01, .d0 = 1e-3, .coef = 2, .growth = 1.2, .decouple = false},
  };
  for (const auto& setting : settings) {
    double estimates[2] = {};
    const auto off = [&]<class T>(uint32_t dtype, T) {
      MetricHost host;
      GroupCase group(prodigy_plugin(), setting.params(), host, types_of(dtype), {{"model", {1003}}});
      begin_from_parameter(group);
      ProdigyReference<T> reference{setting.lr,     setting.decay,    setting.d0,      setting.coef,
                                    setting.growth, setting.decouple, setting.correct, setting.safeguard};
      reference.begin(group);
      std::mt19937 random(11);
      for (int step = 0; step < 100; ++step) {
        set_pulling_gradients(group, random);
        reference.step(group);
        group.step();
      }
      estimates[0] = group.states[kProdigyEstimate].get(0);
      estimates[1] = reference.d;
      return relative_distance(group.values(), reference.values());
    };
    const double same = off(GANNET_FLOAT32, 0.0f);
    const double exact = off(GANNET_FLOAT32, 0.0);
    const double wide = off(GANNET_FLOAT64, 0.0);
    std::printf("Prodigy: %.2g off the reference in fp32, %.2g off that in fp64; in fp64 %.2g, d is %.4g\n", same, exact, wide,
                estimates[0]);
    EXPECT_GT(estimates[0], 5 * setting.d0);  // it has grown
    EXPECT_LT(std::abs(estimates[0] / estimates[1] - 1), estimate_error(setting.d0, 0x1p-53));
    EXPECT_LT(same, 1e-6);
    EXPECT_LT(exact, estimate_error(setting.d0, 0x1p-24));
    EXPECT_LT(wide, estimate_error(setting.d0, 0x1p-53));
  }
}

TEST(Prodigy, KeepsTheStatesOfItsEstimateOncePerGroup) {
  MetricHost host;
  const GroupCase group(prodigy_plugin(), Dict{{"d0", 0.25}}, host, types_of(GANNET_FLOAT32), {{"model", {5}}});
  EXPECT_THAT(group.state_names, ElementsAre("exp_avg", "exp_avg_sq", "s", "p0", "d", "d_max", "d_numerator", "k"));
  EXPECT_EQ(group.states[kProdigyEstimate].count(), 1);
  EXPECT_EQ(group.states[kProdigyEstimate].get(0), 0.25);
  EXPECT_EQ(group.states[kProdigyEstimate + 1].get(0), 0.25);
}

// Before the first gradient and while a schedule is at 0 there is nothing to estimate from: not even the weight decay moves a
// bit.
TEST(Prodigy, WithoutGradientsOrWithoutALearningRateNothingChanges) {
  for (const uint32_t dtype : {GANNET_FLOAT32, GANNET_FLOAT64}) {
    for (const bool has_gradients : {false, true}) {
      MetricHost host;
      GroupCase group(prodigy_plugin(), Dict{{"lr", has_gradients ? 0.0 : 1.0}, {"weight_decay", 0.1}}, host, types_of(dtype),
                      {{"model", {37}}});
      begin_from_parameter(group);
      const auto parameters = group.values();
      const auto states = group.states;
      for (uint32_t step = 1; step <= 3; ++step) {
        group.random_gradients(step);
        for (uint64_t i = 0; i < group.numel && !has_gradients; ++i) group.grad.set(i, 0);
        group.step();
      }
      EXPECT_EQ(group.values(), parameters);
      EXPECT_TRUE(group.states == states);
      EXPECT_EQ(group.states[kProdigyEstimate].get(0), 1e-6);
    }
  }
}

TEST(Prodigy, ALearningRateOfZeroInMidRunKeepsTheEstimate) {
  MetricHost host;
  GroupCase group(prodigy_plugin(), Dict{{"d0", 1e-2}}, host, types_of(GANNET_FLOAT64), {{"model", {37}}});
  begin_from_parameter(group);
  std::mt19937 random(3);
  const auto step = [&] {
    set_pulling_gradients(group, random);
    group.step();
  };
  for (int i = 0; i < 20; ++i) step();
  const auto parameters = group.values();
  const auto states = group.states;
  EXPECT_GT(group.states[kProdigyEstimate].get(0), 1e-2);
  group.optimizer.params.hyper[0] = 0;
  step();
  EXPECT_EQ(group.values(), parameters);
  EXPECT_TRUE(group.states == states);
  group.optimizer.params.hyper[0] = 1;
  step();
  EXPECT_NE(group.values(), parameters);
}

TEST(Prodigy, TheEstimateGrowsByNoMoreThanItsRate) {
  MetricHost host;
  GroupCase group(prodigy_plugin(), Dict{{"d0", 1e-3}, {"growth_rate", 1.25}}, host, types_of(GANNET_FLOAT64), {{"model", {37}}});
  begin_from_parameter(group);
  double before = group.states[kProdigyEstimate].get(0);
  bool is_past_d0 = false;
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    set_pulling_gradients(group, random);
    group.step();
    const double now = group.states[kProdigyEstimate].get(0);
    EXPECT_GE(now, before);
    // A d that is still d0 may jump to what is found, as in the package.
    if (is_past_d0) EXPECT_LE(now, 1.25 * before * (1 + 0x1p-52));
    is_past_d0 = now != 1e-3;
    before = now;
  }
  EXPECT_GT(before, 1e-2);
}

// The model's sums are added over blocks of 16384 elements of the tensor.
TEST(Prodigy, CutsAndThreadsGiveTheWhole) {
  const Dict params{{"d0", 1e-2}, {"weight_decay", 0.1}};
  for (const auto& types : {kAllTypes[0], kAllTypes[4], kAllTypes.back()}) {
    const auto run = [&](const std::vector<uint64_t>& ends, uint64_t pieces) {
      MetricHost host;
      host.pieces = pieces;
      auto group =
          std::make_unique<GroupCase>(prodigy_plugin(), params, host, types, std::vector<GroupCase::Tensor>{{"model", {50'003}}});
      begin_from_parameter(*group);
      for (uint32_t step = 1; step <= 5; ++step) {
        group->random_gradients(step);
        group->step(ends);
      }
      return group;
    };
    const auto whole = run({}, 1);
    for (const uint64_t pieces : {1, 0, 2, 3, 5, 64}) EXPECT_TRUE(run({}, pieces)->same_result(*whole)) << pieces;
    EXPECT_TRUE(run({0, 16384, 32768, 49152, 50'003}, 1)->same_result(*whole));
    for (const auto& ends : std::vector<std::vector<uint64_t>>{{0, 1, 50'003}, {0, 997, 20'001, 50'002, 50'003}})
      EXPECT_LT(relative_distance(run(ends, 1)->values(), whole->values()), types.param == GANNET_FLOAT64 ? 1e-13 : 1e-6);
  }
}

TEST(Prodigy, RefusesWhatItDoesNotDoWithASentence) {
  EXPECT_THAT(package_refusal(prodigy_plugin(), Dict{{"max_grad_norm", 1.0}}),
              HasSubstr("set 'gradient_clipping' at the top level"));
  const auto error_with = [](const Dict& params) -> std::string {
    try {
      Given({{2}}, Dict{{"type", "Prodigy"}, {"params", params}});
      return "created";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_with(Dict{{"d0", 0.0}}), HasSubstr("parameter 'd0' of optimizer plugin Prodigy"));
  EXPECT_THAT(error_with(Dict{{"d0", 0.0}}), HasSubstr("expected a number > 0, found 0"));
  EXPECT_THAT(error_with(Dict{{"growth_rate", 0.5}}),
              HasSubstr("'growth_rate' of optimizer plugin Prodigy: expected a number >= 1, found 0.5"));
  EXPECT_THAT(error_with(Dict{{"beta3", 1.0}}),
              HasSubstr("'beta3' of optimizer plugin Prodigy: expected a number >= 0 and < 1, found 1.0"));
  EXPECT_EQ(error_with(Dict{{"growth_rate", nullptr}, {"beta3", nullptr}}), "created");
}

}  // namespace
}  // namespace gannet::test
