// Schedule-Free AdamW: its rule, the weights that it evaluates with, and the engine's eval() and train() around them.
#include "optimizers/expected/schedule_free.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "config/parse.h"
#include "optimizers/given.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using ::testing::HasSubstr;

const std::vector<std::vector<int64_t>> kScheduleFreeShapes = {{37, 19}, {37}, {}, {300, 8}};

// Defazio et al. 2024, algorithm 1 with Adam's second moment, on whole tensors.
struct ScheduleFreeReference {
  double lr = 2.5e-3, beta1 = 0.9, beta2 = 0.999, decay = 0, warmup = 0, r = 0, power = 2;
  at::ScalarType dtype = at::kFloat;
  std::vector<at::Tensor> y, z, square;
  int64_t steps = 0;
  double weights = 0, largest = 0;

  void begin(const std::vector<at::Tensor>& values) {
    for (const auto& value : values) {
      y.push_back(value.to(dtype, false, true));
      z.push_back(y.back().clone());
      square.push_back(torch::zeros_like(y.back()));
    }
  }
  void step(const std::vector<at::Tensor>& gradients) {
    ++steps;
    const double rate = lr * (warmup > 0 ? std::min(1.0, double(steps) / warmup) : 1);
    largest = std::max(largest, rate);
    const double weight = std::pow(double(steps), r) * std::pow(largest, power);
    weights += weight;
    const double c = weight / weights, bias = 1 - std::pow(beta2, double(steps));
    for (size_t i = 0; i < y.size(); ++i) {
      const at::Tensor g = gradients[i].to(dtype);
      square[i] = beta2 * square[i] + (1 - beta2) * g.square();
      const at::Tensor u = g / ((square[i] / bias).sqrt() + 1e-8) + decay * y[i];
      y[i] = y[i] + c * (z[i] - y[i]) + rate * (beta1 * (1 - c) - 1) * u;
      z[i] = z[i] - rate * u;
    }
  }
  std::vector<at::Tensor> average() const {
    std::vector<at::Tensor> x;
    for (size_t i = 0; i < y.size(); ++i) x.push_back(y[i] + (1 - 1 / beta1) * (z[i] - y[i]));
    return x;
  }
};

Dict schedule_free(const Dict& params = {}) { return Dict{{"type", "AdamWScheduleFree"}, {"params", params}}; }

TEST(ScheduleFree, Follows200StepsOfAReferenceInFp32) {
  Given given(kScheduleFreeShapes, schedule_free(Dict{{"weight_decay", 0.1}, {"warmup_steps", 20}, {"lr", 0.01}}));
  ScheduleFreeReference same{.lr = 0.01, .decay = 0.1, .warmup = 20}, exact = same;
  exact.dtype = at::kDouble;
  same.begin(given.values());
  exact.begin(given.values());
  for (int step = 0; step < 200; ++step) {
    given.step();
    same.step(given.module->gradients);
    exact.step(given.module->gradients);
  }
  std::cout << "Schedule-Free off by " << distance(given.values(), same.y) << "; the fp32 reference is off by "
            << distance(same.y, exact.y) << " from fp64\n";
  EXPECT_LT(distance(given.values(), same.y), 1e-6);
  given.engine->eval();
  EXPECT_LT(distance(given.values(), same.average()), 1e-6);
  EXPECT_GT(distance(given.values(), same.y), 1e-3);  // they are other weights
}

TEST(ScheduleFree, GivesTheNumbersOfItsAuthorsPackage) {
  for (const auto& expected : kExpectedScheduleFree) {
    Given given({{4}}, schedule_free(config::parse_value(expected.params).as_dict()));
    {
      torch::NoGradGuard no_grad;
      given.module->given[0].copy_(torch::tensor({0.5, -1.0, 2.0, 0.0}));
    }
    for (int step = 1; step <= 5; ++step) {
      given.module->gradients = {torch::tensor({0.1, -0.2, 0.3, -1.0}) * (step % 2 ? 1.0 : -0.5) * step};
      given.engine->backward(given.engine->forward(at::Tensor()));
      given.engine->step();
    }
    // Five steps of about ten roundings of numbers below 2.
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_NEAR(given.values()[0][i].item<double>(), expected.trained[i], 2e-6) << expected.params;
    given.engine->eval();
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_NEAR(given.values()[0][i].item<double>(), expected.averaged[i], 2e-6) << expected.params;
  }
}

TEST(ScheduleFree, TrainsOnAsIfItHadNeverBeenEvaluated) {
  for (const bool bf16 : {false, true}) {
    const Dict more = bf16 ? Dict{{"bf16", Dict{{"enabled", true}}}} : Dict{};
    Given straight(kScheduleFreeShapes, schedule_free(), more), evaluated(kScheduleFreeShapes, schedule_free(), more);
    for (int step = 0; step < 6; ++step) {
      straight.step();
      evaluated.step();
      const auto before = evaluated.values();
      evaluated.engine->eval();
      evaluated.engine->eval();  // twice is once
      const auto during = evaluated.values();
      evaluated.engine->train();
      const auto after = evaluated.values();
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_TRUE(torch::equal(after[i], before[i]));
        if (step == 5 && i == 0) EXPECT_FALSE(torch::equal(during[i], before[i]));
      }
    }
    for (size_t i = 0; i < kScheduleFreeShapes.size(); ++i)
      EXPECT_TRUE(torch::equal(evaluated.values()[i], straight.values()[i]));
  }
}

TEST(ScheduleFree, EvaluatesBeforeItsFirstStepWithTheFirstWeights) {
  Given given(kScheduleFreeShapes, schedule_free());
  const auto before = given.values();
  given.engine->eval();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(given.values()[i], before[i]));
  given.engine->train();
  given.step();
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ScheduleFree, TrainsSavesAndLoadsWithTheTrainedWeightsAlone) {
  const TemporaryFolder folder;
  Given given(kScheduleFreeShapes, schedule_free());
  given.step();
  given.engine->save_checkpoint(folder.string(), {.tag = "one"});
  given.engine->eval();
  EXPECT_THAT(error_of([&] { given.engine->save_checkpoint(folder.string()); }), HasSubstr("call engine->train() first"));
  EXPECT_THAT(error_of([&] { given.engine->load_checkpoint(folder.string()); }), HasSubstr("call engine->train() first"));
  EXPECT_THAT(error_of([&] { given.engine->step(); }), HasSubstr("call engine->train() first"));
  EXPECT_THAT(error_of([&] { given.engine->swap_optimizer("AdamW", Dict{}); }), HasSubstr("call engine->train() first"));
  EXPECT_THAT(error_of([&] { given.engine->set_full_fp32_parameter("p1", torch::zeros({37})); }),
              HasSubstr("call engine->train()"));
  given.engine->save_16bit_model(folder.string());  // is for use: it has the evaluated weights
  given.engine->train();
  given.step();
  const auto expected = given.values();
  Given other(kScheduleFreeShapes, schedule_free());
  other.engine->load_checkpoint(folder.string(), {.tag = "one"});
  other.steps = 1;
  other.step();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(other.values()[i], expected[i]));
}

TEST(ScheduleFree, RefusesEvalBetweenForwardAndStep) {
  Given given(kScheduleFreeShapes, schedule_free());
  given.set_gradients(1);
  auto loss = given.engine->forward(at::Tensor());
  EXPECT_THAT(error_of([&] { given.engine->eval(); }), HasSubstr("call it after step()"));
  given.engine->backward(loss);
  given.engine->step();
}

// A checkpoint that has no `z`: it begins at the weights that were loaded, not at zero.
TEST(ScheduleFree, BeginsAtTheWeightsOfAnotherOptimizersCheckpoint) {
  const TemporaryFolder folder;
  Given adam(kScheduleFreeShapes, Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 0.1}}}});
  for (int step = 0; step < 3; ++step) adam.step();
  adam.engine->save_checkpoint(folder.string());
  Given given(kScheduleFreeShapes, schedule_free(Dict{{"lr", 1e-3}}));
  EXPECT_THAT(error_of([&] { given.engine->load_checkpoint(folder.string()); }),
              HasSubstr("missing in the checkpoint: state/z/p0"));
  given.engine->load_checkpoint(folder.string(), {.load_optimizer_states = false});
  const auto before = given.values();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], adam.values()[i]));
  given.steps = 3;
  given.step();
  EXPECT_LT(distance(given.values(), before), 0.01);
  EXPECT_GT(distance(given.values(), before), 0);
}

// x is made of y and z with the beta1 that made them, not with that of the resuming run's config.
TEST(ScheduleFree, ResumesWithTheFirstBetaOfItsCheckpoint) {
  const TemporaryFolder folder;
  Given given(kScheduleFreeShapes, schedule_free(Dict{{"lr", 0.01}}));
  for (int step = 0; step < 3; ++step) given.step();
  given.engine->save_checkpoint(folder.string());
  given.engine->eval();
  const auto averaged = given.values();
  given.engine->train();
  Given other(kScheduleFreeShapes, schedule_free(Dict{{"lr", 0.01}, {"betas", List{0.5, 0.999}}}));
  other.engine->load_checkpoint(folder.string());
  other.engine->eval();
  for (size_t i = 0; i < averaged.size(); ++i) EXPECT_TRUE(torch::equal(other.values()[i], averaged[i]));
  other.engine->train();
  given.step();
  other.steps = 3;
  other.step();
  for (size_t i = 0; i < averaged.size(); ++i) EXPECT_TRUE(torch::equal(other.values()[i], given.values()[i]));
}

TEST(ScheduleFree, TakesOverFromAdamWInMidRun) {
  Given given(kScheduleFreeShapes, Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}});
  for (int step = 0; step < 3; ++step) given.step();
  const auto before = given.values();
  const auto receipt = given.engine->swap_optimizer("AdamWScheduleFree", Dict{{"lr", 1e-3}});
  EXPECT_THAT(receipt.kept, testing::ElementsAre("exp_avg_sq"));
  given.step();
  EXPECT_LT(distance(given.values(), before), 0.01);
  given.engine->eval();
  EXPECT_LT(distance(given.values(), before), 0.02);
}

TEST(ScheduleFree, RefusesABeta1OfZero) {
  EXPECT_THAT(error_of([] { Given({{2}}, schedule_free(Dict{{"betas", List{0.0, 0.9}}})); }), HasSubstr("'betas' is 0"));
}

}  // namespace
}  // namespace gannet::test
