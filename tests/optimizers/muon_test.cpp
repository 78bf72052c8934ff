#include "optimizers/expected/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>

#include "optimizers/muon_reference.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;

std::vector<double> first(const GroupCase& group, uint64_t count) {
  auto values = group.values();
  values.resize(count);
  return values;
}

TEST(Muon, GivesTheNumbersOfDeepSpeedsFormulas) {
  for (const auto& types : {kAllTypes[0], kAllTypes.back()}) {
    for (const char* method : {"gram", "standard"}) {
      for (const auto& expected : kExpectedMuon) {
        TestHost host;
        GroupCase group(muon(),
                        Dict{{"lr", expected.lr},
                             {"momentum", expected.momentum},
                             {"weight_decay", expected.weight_decay},
                             {"ns_steps", expected.ns_steps},
                             {"nesterov", expected.nesterov},
                             {"ns_method", method}},
                        host, types, {{"weight", {expected.shape, expected.shape + expected.dimensions}}});
        for (uint64_t i = 0; i < group.numel; ++i) group.param.set(i, kMuonStart[i]);
        for (const auto& gradients : kMuonGradients) {
          for (uint64_t i = 0; i < group.numel; ++i) group.grad.set(i, gradients[i]);
          group.step();
        }
        const std::vector<double> wanted(expected.param, expected.param + group.numel);
        // The parameters' norm is above 2, three updates' at most 3 * 0.1 * sqrt(3.5 * 7).
        EXPECT_LT(relative_distance(group.values(), wanted), 0.75 * unit_of_orthogonalization(9)) << group.numel << method;
      }
    }
  }
}

TEST(Muon, Follows200StepsOfAReferenceInFp32) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{24, 41}, {41, 24}, {30, 30}}) {
    TestHost host;
    const double lr = 0.02, decay = 0.1;
    GroupCase group(muon(), Dict{{"lr", lr}, {"weight_decay", decay}}, host, kAllTypes[0], {{"weight", shape}});
    ASSERT_THAT(group.state_names, ElementsAre("exp_avg"));
    EXPECT_EQ(group.capabilities, uint64_t{GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR});
    MuonReference<float> same{.lr = lr, .decay = decay};
    MuonReference<double> exact{.lr = lr, .decay = decay};
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
    std::printf("[%ld, %ld], 200 steps: %.2g from the reference in fp32, %.2g from that in fp64\n", static_cast<long>(shape[0]),
                static_cast<long>(shape[1]), from_same, from_exact);
    // The parameters' norm is above that of 20 updates; 200 updates' errors add up, and each rounds the parameter.
    const double bound = 200 * lr * unit_of_orthogonalization(41) + 200 * 0x1p-24;
    EXPECT_LT(from_same, bound);
    EXPECT_LT(from_exact, bound);
  }
}

TEST(Muon, FollowsTheReferenceInEveryModeAndType) {
  for (const auto& types : kAllTypes) {
    for (int mode = 0; mode < 4; ++mode) {
      TestHost host;
      GroupCase group(muon(),
                      Dict{{"lr", 0.05},
                           {"weight_decay", 0.2},
                           {"momentum", 0.8},
                           {"nesterov", bool(mode & 1)},
                           {"ns_method", mode & 2 ? "gram" : "standard"}},
                      host, types, {{"weight", {9, 13}}});
      group.grad_scale = 0.25;
      MuonReference<double> exact{.lr = 0.05, .momentum = 0.8, .decay = 0.2, .nesterov = bool(mode & 1)};
      exact.begin(group);
      for (uint32_t step = 1; step <= 20; ++step) {
        group.random_gradients(step);
        group.step();
        exact.step(group);
      }
      ASSERT_LT(relative_distance(group.values(), exact.values()), 20 * 0.05 * unit_of_orthogonalization(13)) << mode;
      std::vector<double> momentum;
      for (uint64_t i = 0; i < group.numel; ++i) momentum.push_back(group.states[0].get(i));
      ASSERT_LT(relative_distance(momentum, {exact.m.begin(), exact.m.end()}), types.param == GANNET_FLOAT64 ? 1e-14 : 1e-6);
      if (types.out == GANNET_DTYPE_NONE) continue;
      Buffer rounded(types.out, group.numel);
      for (uint64_t i = 0; i < group.numel; ++i) rounded.set(i, group.param.get(i));
      ASSERT_TRUE(group.out == rounded);
    }
  }
}

// The products' blocks are 256 deep, 96 rows and 512 columns, tiles 6 or 12 rows; 4096 columns are packed at once.
TEST(Muon, EveryShapeIsOrthogonalizedWhole) {
  std::vector<std::vector<int64_t>> shapes = {{1, 1},     {1, 50},    {50, 1},   {3, 4200}, {4200, 3}, {130, 530},
                                              {530, 130}, {270, 270}, {98, 300}, {12, 32},  {97, 257}, {13, 512}};
  for (int64_t size = 2; size <= 40; size += 3) shapes.push_back({size, 41 - size});
  for (const auto& shape : shapes) {
    MuonReference<double> exact{.lr = 1};
    for (const char* method : {"gram", "standard"}) {
      TestHost host;
      GroupCase group(muon(), Dict{{"lr", 1.0}, {"ns_method", method}}, host, kAllTypes[0], {{"weight", shape}});
      for (uint64_t i = 0; i < group.numel; ++i) group.param.set(i, 0);
      group.random_gradients(7);
      if (exact.p.empty()) {
        exact.begin(group);
        exact.step(group);
      }
      group.step();
      EXPECT_LT(relative_distance(group.values(), exact.values()),
                unit_of_orthogonalization(static_cast<uint64_t>(std::max(shape[0], shape[1]))))
          << shape[0] << " by " << shape[1] << " " << method;
    }
  }
}

// Guarantees of the iteration: singular values between 0.68 and 1.14 for a matrix that is not
// nearly singular, so that the update's squares add up to about the rank.
TEST(Muon, AnUpdatesSizeIsThatOfAnOrthogonalMatrix) {
  TestHost host;
  GroupCase group(muon(), Dict{{"lr", 1.0}}, host, kAllTypes[0], {{"weight", {40, 160}}});
  for (uint64_t i = 0; i < group.numel; ++i) group.param.set(i, 0);
  group.random_gradients(7);
  group.step();
  double squares = 0;
  for (const double value : group.values()) squares += value * value;
  EXPECT_GT(squares, 40 * 0.68 * 0.68);
  EXPECT_LT(squares, 40 * 1.14 * 1.14);
}

std::vector<GroupCase::Tensor> model() {
  return {
      {"wte.weight", {50, 16}},        {"h.0.attn.weight", {48, 130}}, {"h.0.attn.bias", {48}}, {"h.0.mlp.weight", {300, 110}},
      {"experts.weight", {3, 20, 10}}, {"conv.weight", {8, 4, 3, 3}},  {"ln.scale", {1}},       {"lm_head.weight", {16, 50}}};
}

TEST(Muon, TheResultDoesNotDependOnTheNumberOfThreads) {
  for (const auto& types : {kAllTypes[0], kAllTypes[4], kAllTypes.back()}) {
    auto run = [&](uint64_t pieces) {
      TestHost host;
      host.pieces = pieces;
      auto group = std::make_unique<GroupCase>(muon(), Dict{{"weight_decay", 0.1}}, host, types, model());
      for (uint32_t step = 1; step <= 3; ++step) {
        group->random_gradients(step);
        group->step();
      }
      return group;
    };
    const auto alone = run(1);
    for (const uint64_t pieces : {0, 2, 3, 7, 64}) EXPECT_TRUE(run(pieces)->same_result(*alone)) << pieces;
  }
}

TEST(Muon, TheResultDoesNotDependOnTheWidthOfTheSimd) {
  auto run = [&](int64_t target) {
    hwy::GetChosenTarget().Update(target);
    TestHost host;
    GroupCase group(muon(), Dict{{"weight_decay", 0.1}}, host, kAllTypes[4], model());
    for (uint32_t step = 1; step <= 3; ++step) {
      group.random_gradients(step);
      group.step();
    }
    hwy::GetChosenTarget().DeInit();
    return group.values();
  };
  const auto best = run(HWY_AVX2);
  if (hwy::SupportedTargets() & HWY_AVX3) EXPECT_EQ(run(HWY_AVX3), best);
  for (const int64_t target : {int64_t{0}, int64_t{HWY_SSE4}})
    EXPECT_LT(relative_distance(run(target), best), 3 * 0.02 * unit_of_orthogonalization(300)) << target;
}

TEST(Muon, WholeTensorsInSeveralPiecesGiveTheSameBits) {
  TestHost host;
  GroupCase whole(muon(), {}, host, kAllTypes[4], model()), cut(muon(), {}, host, kAllTypes[4], model());
  std::vector<uint64_t> ends;
  for (const auto& tensor : whole.tensors) ends.push_back(tensor.offset);
  ends.push_back(whole.numel);
  for (uint32_t step = 1; step <= 3; ++step) {
    whole.random_gradients(step);
    cut.random_gradients(step);
    whole.step();
    cut.step(ends);
  }
  EXPECT_TRUE(cut.same_result(whole));
  Buffer rounded(whole.types.out, whole.numel);
  for (uint64_t i = 0; i < whole.numel; ++i) rounded.set(i, whole.param.get(i));
  EXPECT_TRUE(whole.out == rounded);
}

TEST(Muon, AGradientOfZerosLeavesTheParameter) {
  TestHost host;
  GroupCase group(muon(), {}, host, kAllTypes[0], {{"weight", {5, 8}}});
  const auto before = group.values();
  for (uint64_t i = 0; i < group.numel; ++i) group.grad.set(i, 0);
  group.step();
  EXPECT_EQ(group.values(), before);
}

// 1/2 |p - target|^2 with a rate that falls to 0.
TEST(Muon, ConvergesOnAQuadratic) {
  TestHost host;
  GroupCase group(muon(), {}, host, {GANNET_FLOAT32, GANNET_FLOAT32, GANNET_BFLOAT16}, {{"weight", {6, 10}}, {"bias", {6}}});
  for (uint64_t step = 1; step <= 1500; ++step) {
    group.optimizer.params.hyper[0] = 0.05 * (1 - static_cast<double>(step) / 1500);
    for (uint64_t i = 0; i < group.numel; ++i) group.grad.set(i, group.param.get(i) - static_cast<double>(i % 5) / 10);
    group.step();
  }
  const auto values = first(group, 60);
  for (uint64_t i = 0; i < 60; ++i) EXPECT_NEAR(values[i], static_cast<double>(i % 5) / 10, 1e-2);
}

}  // namespace
}  // namespace gannet::test
