// LookaheadAdamW and LookaheadSGD, beside their formulas and beside a published package; the slow weights, which are evaluated.
#include "optimizers/expected/lookahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "optimizers/package_engine.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LoadedPlugin& lookahead_adamw() {
  static const LoadedPlugin plugin("optimizer_lookahead", "LookaheadAdamW");
  return plugin;
}
const LoadedPlugin& lookahead_sgd() {
  static const LoadedPlugin plugin("optimizer_lookahead", "LookaheadSGD");
  return plugin;
}

// Zhang et al. 2019, algorithm 1, around AdamW (state m, v, slow) or SGD with momentum (state b, unused, slow).
struct LookaheadSetting {
  bool adamw;
  double lr = 0.01, decay = 0, alpha = 0.5;
  uint64_t k = 5;

  const LoadedPlugin& plugin() const { return adamw ? lookahead_adamw() : lookahead_sgd(); }
  Dict params() const { return Dict{{"lr", lr}, {"weight_decay", decay}, {"k", static_cast<int64_t>(k)}, {"alpha", alpha}}; }
  template <class T>
  PackageRule<T> rule() const {
    return [*this](PackageElement<T>& e, T gradient, uint64_t step) {
      auto& [first, second, slow, unused] = e.state;
      if (step == 1) slow = e.p;
      if (adamw) {
        // DeepSpeed's AdamW: the betas are rounded to T before all else.
        const T beta1 = T(0.9), beta2 = T(0.999);
        const auto bias = [&](T beta) { return 1 - std::pow(double{beta}, static_cast<double>(step)); };
        first = beta1 * first + (1 - beta1) * gradient;
        second = beta2 * second + (1 - beta2) * gradient * gradient;
        e.p -= T(lr) * T(decay) * e.p;
        e.p -= T(lr / bias(beta1)) * first / (std::sqrt(second) / T(std::sqrt(bias(beta2))) + T(1e-8));
      } else {
        const T g = gradient + T(decay) * e.p;
        first = step == 1 ? g : T(0.9) * first + g;
        e.p -= T(lr) * first;
      }
      if (step % k == 0) slow = e.p = slow + T(alpha) * (e.p - slow);
    };
  }
};
const std::vector<LookaheadSetting> kLookaheadSettings = {{.adamw = true},
                                                          {.adamw = true, .decay = 0.1, .alpha = 0.8, .k = 3},
                                                          {.adamw = false},
                                                          {.adamw = false, .decay = 0.01, .alpha = 0.25, .k = 7}};

struct LookaheadType {
  const char* name;
  const LoadedPlugin& plugin;
  std::vector<ExpectedSteps> expected;
  size_t slow;  // index of the state
};
std::vector<LookaheadType> lookahead_types() {
  return {{"LookaheadAdamW", lookahead_adamw(), {std::begin(kExpectedLookaheadAdamW), std::end(kExpectedLookaheadAdamW)}, 2},
          {"LookaheadSGD", lookahead_sgd(), {std::begin(kExpectedLookaheadSgd), std::end(kExpectedLookaheadSgd)}, 1}};
}

TEST(Lookahead, GivesTheNumbersOfAPackage) {
  for (const auto& type : lookahead_types()) {
    for (const auto& expected : type.expected) {
      PackageCase wide(type.plugin, expected, GANNET_FLOAT64, kPackageTensors);
      PackageCase single(type.plugin, expected, GANNET_FLOAT32, kPackageTensors);
      wide.train();
      single.train();
      std::printf("%s %s: off by %.2g in fp64, %.2g in fp32\n", type.name, expected.params, wide.off_fp64(), single.off_fp32());
      // 16 steps of about ten roundings each.
      EXPECT_LT(wide.off_fp64(), 16 * 10 * 0x1p-53) << type.name << expected.params;
      EXPECT_LT(relative_distance(values_of(wide.group.states[type.slow]), values_of(expected.slow)), 16 * 10 * 0x1p-53);
      EXPECT_LT(single.off_fp32(), 1e-6) << type.name << expected.params;
    }
  }
}

TEST(Lookahead, Follows200StepsOfAReference) {
  for (const auto& setting : kLookaheadSettings) {
    const auto off = [&]<class T>(uint32_t dtype, T) {
      TestHost host;
      GroupCase group(setting.plugin(), setting.params(), host, types_of(dtype), {{"weight", {17, 59}}});
      return distance_to_rule<T>(group, setting.rule<T>(), 200);
    };
    const double same = off(GANNET_FLOAT32, 0.0f), exact = off(GANNET_FLOAT32, 0.0), wide = off(GANNET_FLOAT64, 0.0);
    std::printf("Lookahead: %.2g off the reference in fp32, %.2g off that in fp64; in fp64 %.2g\n", same, exact, wide);
    // Each of 200 steps rounds the parameter, and its update by a few units of a number a hundred times smaller.
    EXPECT_LT(same, 1e-6);
    EXPECT_LT(exact, 200 * 0x1p-24);
    EXPECT_LT(wide, 200 * 0x1p-53);
  }
}

TEST(Lookahead, TheParameterIsTheSlowWeightAfterEveryKthStepAlone) {
  for (const auto& type : lookahead_types()) {
    TestHost host;
    GroupCase group(type.plugin, Dict{{"lr", 0.1}, {"k", 3}, {"alpha", 0.25}}, host, types_of(GANNET_FLOAT32),
                    {{"weight", {5, 7}}});
    EXPECT_EQ(group.state_names.back(), "slow");
    begin_from_parameter(group);
    auto slow = group.values();
    for (uint32_t step = 1; step <= 9; ++step) {
      group.random_gradients(step);
      group.step();
      const bool meets = step % 3 == 0;
      for (uint64_t i = 0; i < group.numel; ++i) {
        const double now = group.states[type.slow].get(i);
        EXPECT_EQ(group.param.get(i) == now, meets) << type.name << ", step " << step;
        EXPECT_EQ(now != slow[i], meets) << type.name << ", step " << step;
      }
      slow = values_of(group.states[type.slow]);
    }
  }
}

// Alpha 1 keeps nothing of the slow weights, alpha 0 returns to the first ones.
TEST(Lookahead, TheEndsOfAlphaAreTheInnerRuleAndNoMove) {
  TestHost host;
  const auto run = [&](const LoadedPlugin& plugin, Dict params) {
    params["lr"] = 0.125;
    GroupCase group(plugin, params, host, types_of(GANNET_FLOAT64), {{"weight", {5, 7}}});
    begin_from_parameter(group);
    const auto first = group.values();
    for (uint32_t step = 1; step <= 4; ++step) {
      group.random_gradients(step);
      group.step();
    }
    return std::pair(group.values(), first);
  };
  const LoadedPlugin adamw("optimizer_adam", "AdamW"), sgd("optimizer_sgd", "SGD");
  EXPECT_LT(relative_distance(run(lookahead_adamw(), Dict{{"k", 2}, {"alpha", 1}}).first,
                              run(adamw, Dict{{"weight_decay", 0.0}}).first),
            4 * 10 * 0x1p-53);
  EXPECT_LT(relative_distance(run(lookahead_sgd(), Dict{{"k", 2}, {"alpha", 1}}).first, run(sgd, Dict{{"momentum", 0.9}}).first),
            4 * 10 * 0x1p-53);
  const auto [still, first] = run(lookahead_adamw(), Dict{{"k", 2}, {"alpha", 0}});
  EXPECT_EQ(still, first);
}

// Through the engine, whose eval() puts the slow weights into the model.
TEST(Lookahead, EvaluatesWithTheSlowWeights) {
  for (const auto& type : lookahead_types()) {
    for (const auto& expected : type.expected) {
      PackageEngine trained(type.name, expected);
      trained.train();
      const auto fast = trained.values();
      EXPECT_LT(relative_distance(fast, values_of(expected.in_fp32)), 1e-6) << type.name << expected.params;
      trained.given.engine->eval();
      std::vector<double> slow;
      for (const auto& name : trained.given.engine->parameter_names()) {
        const at::Tensor state = trained.given.engine->full_optimizer_state(name, "slow").flatten();
        for (int64_t i = 0; i < state.numel(); ++i) slow.push_back(state[i].item<double>());
      }
      EXPECT_EQ(trained.values(), slow);
      EXPECT_LT(relative_distance(trained.values(), values_of(expected.slow)), 1e-6) << type.name << expected.params;
      EXPECT_NE(trained.values(), fast);
      trained.given.engine->train();
      EXPECT_EQ(trained.values(), fast);
    }
  }
}

TEST(Lookahead, EvaluatesBeforeItsFirstStepWithTheFirstWeights) {
  for (const auto& type : lookahead_types()) {
    Given given({{5, 7}}, Dict{{"type", type.name}, {"params", Dict{{"lr", 0.1}}}});
    const at::Tensor before = given.values()[0];
    given.engine->eval();
    EXPECT_TRUE(torch::equal(given.values()[0], before));
  }
}

TEST(Lookahead, DeclaresTheInnerRulesStatesAndTheSlowWeights) {
  TestHost host;
  EXPECT_THAT(OptimizerUnderTest(lookahead_adamw(), {}, host).states(), ElementsAre("exp_avg", "exp_avg_sq", "slow"));
  EXPECT_THAT(OptimizerUnderTest(lookahead_sgd(), {}, host).states(), ElementsAre("momentum_buffer", "slow"));
}

TEST(Lookahead, RefusesWhatItDoesNotDoWithASentence) {
  for (const auto& type : lookahead_types()) {
    EXPECT_THAT(package_refusal(type.plugin, Dict{{"max_grad_norm", 1.0}}),
                HasSubstr("set 'gradient_clipping' at the top level"));
    const auto error_with = [&](const Dict& params) -> std::string {
      try {
        Given({{2}}, Dict{{"type", type.name}, {"params", params}});
        return "created";
      } catch (const Error& error) {
        return error.what();
      }
    };
    EXPECT_THAT(error_with(Dict{{"alpha", 1.5}}), HasSubstr("parameter 'alpha' of optimizer plugin " + std::string(type.name)));
    EXPECT_THAT(error_with(Dict{{"alpha", 1.5}}), HasSubstr("expected a number >= 0 and <= 1, found 1.5"));
    EXPECT_THAT(error_with(Dict{{"k", 0}}), HasSubstr("parameter 'k' of optimizer plugin " + std::string(type.name)));
    EXPECT_THAT(error_with(Dict{{"k", 0}}), HasSubstr("expected an integer >= 1, found 0"));
    EXPECT_EQ(error_with(Dict{{"k", 1}, {"alpha", 1.0}}), "created");
  }
}

}  // namespace
}  // namespace gannet::test
