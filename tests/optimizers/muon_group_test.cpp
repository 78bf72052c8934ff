// Muon's treatment of a group's tensors: which are Adam's, which are several matrices, and the
// rates of both parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optimizers/group_case.h"
#include "optimizers/muon_reference.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MuonGroup, APartOfATensorIsRefused) {
  TestHost host;
  GroupCase group(muon(), {}, host, kAllTypes[0], {{"weight", {8, 8}}});
  group.random_gradients(1);
  try {
    group.step({0, 32, 64});
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("a part of 'weight', but Muon needs it whole"));
  }
}

// Each expert is a matrix of its own; a convolution is one matrix.
TEST(MuonGroup, TensorsOfThreeDimensionsAreSeveralMatricesAndOfFourOne) {
  TestHost host;
  GroupCase experts(muon(), {}, host, kAllTypes[0], {{"experts", {3, 8, 5}}});
  GroupCase each(muon(), {}, host, kAllTypes[0], {{"a", {8, 5}}, {"b", {8, 5}}, {"c", {8, 5}}});
  GroupCase convolution(muon(), {}, host, kAllTypes[0], {{"conv", {5, 2, 3, 3}}});
  GroupCase flat(muon(), {}, host, kAllTypes[0], {{"flat", {5, 18}}});
  for (GroupCase* group : {&experts, &each, &convolution, &flat}) {
    group->random_gradients(1);
    group->step();
  }
  EXPECT_TRUE(experts.param == each.param);
  EXPECT_TRUE(convolution.param == flat.param);
}

TEST(MuonGroup, VectorsEmbeddingsAndHeadsAreTrainedByAdamWBitForBit) {
  static const LoadedPlugin adamw("optimizer_adam", "AdamW");
  const std::vector<GroupCase::Tensor> tensors = {{"wte.weight", {50, 16}},
                                                  {"attn.bias", {48}},
                                                  {"model.embed_tokens.weight", {9, 9}},
                                                  {"lm_head.weight", {16, 50}},
                                                  {"s", {1}}};
  for (const auto& types : kAllTypes) {
    TestHost host;
    GroupCase group(muon(), Dict{{"lr", 0.02}, {"adam_lr", 0.01}, {"weight_decay", 0.1}}, host, types, tensors);
    GroupCase adam(adamw, Dict{{"lr", 0.01}, {"weight_decay", 0.1}, {"betas", List{0.9, 0.95}}, {"eps", 1e-10}}, host, types,
                   tensors);
    ASSERT_THAT(group.state_names, ElementsAre("exp_avg", "exp_avg_sq"));
    for (uint32_t step = 1; step <= 5; ++step) {
      group.random_gradients(step);
      adam.random_gradients(step);
      group.step();
      adam.step();
    }
    EXPECT_TRUE(group.param == adam.param && group.out == adam.out && group.states == adam.states);
  }
}

// Whether a tensor of this name is Adam's: then its second moment is written.
bool is_adams(const std::string& name, const std::vector<int64_t>& shape, const Dict& params = {}) {
  TestHost host;
  GroupCase group(muon(), params, host, kAllTypes[0], {{name, shape}, {"bias", {4}}});
  group.random_gradients(1);
  group.step();
  return group.states[1].get(0) != 0;
}

TEST(MuonGroup, NamesAndDimensionsDecideWhichTensorsAreAdams) {
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "transformer.wte.weight", "wpe", "patch_embedding"})
    EXPECT_TRUE(is_adams(name, {4, 4})) << name;
  for (const char* name : {"h.0.attn.c_attn.weight", "mlp", "Embed.weight", "head.weight", "wt.e"})
    EXPECT_FALSE(is_adams(name, {4, 4})) << name;
  EXPECT_TRUE(is_adams("h.0.attn.c_attn.bias", {16}));
  EXPECT_FALSE(is_adams("lm_head.weight", {4, 4}, Dict{{"adam_for", "*router*|head.?"}}));
  EXPECT_FALSE(is_adams("lm_head.weight", {4, 4}, Dict{{"adam_for", ""}}));
  EXPECT_TRUE(is_adams("h.1.router.weight", {4, 4}, Dict{{"adam_for", "*router*|head.?"}}));
  EXPECT_TRUE(is_adams("head.2", {4, 4}, Dict{{"adam_for", "*router*|head.?"}}));
  EXPECT_FALSE(is_adams("head.22", {4, 4}, Dict{{"adam_for", "*router*|head.?"}}));
  EXPECT_TRUE(is_adams("a.a.b.weight", {4, 4}, Dict{{"adam_for", "*a.b*t"}}));
}

TEST(MuonGroup, ParametersThatJoinAreAdamsOnlyWhereTheSecondMomentIsKept) {
  TestHost host;
  const int64_t shape[] = {4, 4}, length[] = {4};
  gannet_tensor matrix{}, bias{};
  matrix.struct_size = bias.struct_size = sizeof(gannet_tensor);
  matrix.dimensions = 2, matrix.shape = shape, matrix.name = "weight", matrix.numel = 16;
  bias.dimensions = 1, bias.shape = length, bias.name = "late.bias", bias.numel = 4, bias.index = 1;
  const gannet_tensor both[] = {matrix, bias};
  gannet_optimizer_context context{};
  context.struct_size = sizeof(context);
  context.tensors = both;
  context.tensor_stride = sizeof(gannet_tensor);
  context.tensor_count = 1;
  OptimizerUnderTest optimizer(muon(), {}, host);
  EXPECT_EQ(optimizer.describe(context).state_count, 1u);
  context.tensor_count = 2;
  try {
    optimizer.describe(context);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameter 'late.bias' is Adam's, but the group that it joins"));
  }
}

// Both parts' rates, from parameters at 0 that move by them: Muon's scalar by its update, Adam's first step by the rate itself.
void expect_rates(const Dict& params, double lr_of_step, double muon_rate, double adam_rate) {
  TestHost host;
  GroupCase group(muon(), params, host, kAllTypes.back(), {{"weight", {1, 1}}, {"bias", {1}}});
  if (lr_of_step >= 0) group.optimizer.params.hyper[0] = lr_of_step;
  for (uint64_t i = 0; i < 2; ++i) {
    group.param.set(i, 0);
    group.grad.set(i, 1);
  }
  group.step();
  double x = 1;
  for (int step = 0; step < 5; ++step) x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
  EXPECT_NEAR(group.param.get(0), -muon_rate * x, 1e-5 * muon_rate);
  EXPECT_NEAR(group.param.get(1), -adam_rate, 1e-5 * adam_rate);
}

TEST(MuonGroup, BothRatesFollowTheSchedule) {
  expect_rates({}, -1, 0.02, 3e-4);
  expect_rates(Dict{{"lr", 0.04}}, -1, 0.04, 0.04);
  expect_rates(Dict{{"lr", 0.04}, {"adam_lr", 1e-3}}, -1, 0.04, 1e-3);
  expect_rates(Dict{{"muon_lr", 0.1}, {"adam_lr", 1e-3}}, -1, 0.1, 1e-3);
  expect_rates({}, 0.01, 0.01, 1.5e-4);
  expect_rates(Dict{{"lr", 0.04}, {"adam_lr", 1e-3}}, 0.01, 0.01, 2.5e-4);
  expect_rates(Dict{{"lr", 0.04}, {"muon_lr", 0.1}, {"adam_lr", 1e-3}}, 0.01, 0.025, 2.5e-4);
  expect_rates(Dict{{"lr", 0.04}, {"adam_lr", 1e-3}}, 0, 0, 0);
}

TEST(MuonGroup, TakesTheTenCombinationsOfTypesAndNoOther) {
  TestHost host;
  OptimizerUnderTest optimizer(muon(), {}, host);
  int taken = 0;
  for (uint32_t param = 0; param <= GANNET_BOOL; ++param)
    for (uint32_t grad = 0; grad <= GANNET_BOOL; ++grad)
      for (uint32_t out = 0; out <= GANNET_BOOL; ++out) taken += optimizer.supports(param, grad, out);
  EXPECT_EQ(taken, static_cast<int>(kAllTypes.size()));
}

TEST(MuonGroup, RefusesWhatItDoesNotDoWithTheReason) {
  auto refusal = [](const Dict& params) -> std::string {
    TestHost host;
    try {
      OptimizerUnderTest optimizer(muon(), params, host);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "created";
  };
  EXPECT_THAT(refusal(Dict{{"max_grad_norm", 1.0}}), HasSubstr("set 'gradient_clipping' at the top level"));
  EXPECT_THAT(refusal(Dict{{"lr", 0.0}, {"adam_lr", 1e-3}}), HasSubstr("'lr' is 0, but 'muon_lr' and 'adam_lr' follow"));
  EXPECT_EQ(refusal(Dict{{"lr", 0.0}}), "created");
}

}  // namespace
}  // namespace gannet::test
