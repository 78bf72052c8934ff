#include "optimizers/expected/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>

#include "optimizers/group_case.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LoadedPlugin& muon() {
  static const LoadedPlugin plugin("optimizer_muon", "Muon");
  return plugin;
}

// The orthogonalization's error. A step multiplies an error by at most the slope of a x + b x^3 + c x^5 at 0, 3.4445: five steps
// by 485. What a step adds is the rounding of three products of matrices of norm about 1, each a few units times the root of the
// depth. In Frobenius norm, relative to the update, whose singular values are near 1.
double unit_of_orthogonalization(uint64_t depth) { return 485 * 3 * std::sqrt(static_cast<double>(depth)) * 0x1p-24; }

// The iteration on X itself, by plain loops in T.
template <class T>
struct Reference {
  double lr = 0.02, momentum = 0.95, decay = 0;
  bool nesterov = true;
  int ns_steps = 5;
  uint64_t rows = 0, columns = 0;
  double scale = 1;
  std::vector<T> p, m;

  using Matrix = std::vector<T>;
  // [n, k] times [k, m], or the second one transposed.
  static Matrix product(const Matrix& a, const Matrix& b, uint64_t n, uint64_t k, uint64_t m, bool b_transposed = false) {
    Matrix c(n * m);
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t j = 0; j < m; ++j) {
        T sum = 0;
        for (uint64_t l = 0; l < k; ++l) sum += a[i * k + l] * (b_transposed ? b[j * k + l] : b[l * m + j]);
        c[i * m + j] = sum;
      }
    return c;
  }
  static Matrix transposed(const Matrix& a, uint64_t n, uint64_t m) {
    Matrix b(a.size());
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t j = 0; j < m; ++j) b[j * n + i] = a[i * m + j];
    return b;
  }
  Matrix orthogonalized(Matrix x) const {
    const bool is_tall = rows > columns;
    const uint64_t n = std::min(rows, columns), k = std::max(rows, columns);
    if (is_tall) x = transposed(x, rows, columns);
    double squares = 0;
    for (const T value : x) squares += double{value} * double{value};
    for (T& value : x) value *= static_cast<T>(1 / (std::sqrt(squares) + 1e-7));
    for (int step = 0; step < ns_steps; ++step) {
      const Matrix a = product(x, x, n, k, n, true);
      Matrix b = product(a, a, n, n, n);
      for (uint64_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(-4.7750) * a[i] + static_cast<T>(2.0315) * b[i];
      const Matrix y = product(b, x, n, n, k);
      for (uint64_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(3.4445) * x[i] + y[i];
    }
    return is_tall ? transposed(x, n, k) : x;
  }
  void begin(const GroupCase& group) {
    const auto& tensor = group.tensors[0];
    rows = static_cast<uint64_t>(tensor.shape[0]);
    columns = tensor.numel / rows;
    scale = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
    for (uint64_t i = 0; i < tensor.numel; ++i) p.push_back(static_cast<T>(group.param.get(i)));
    m.resize(p.size());
  }
  void step(const GroupCase& group) {
    Matrix u(p.size());
    for (uint64_t i = 0; i < p.size(); ++i) {
      const T g = static_cast<T>(group.grad.get(i)) * static_cast<T>(group.grad_scale);
      m[i] += static_cast<T>(1 - momentum) * (g - m[i]);
      u[i] = nesterov ? m[i] + static_cast<T>(1 - momentum) * (g - m[i]) : m[i];
    }
    u = orthogonalized(u);
    for (uint64_t i = 0; i < p.size(); ++i) p[i] = p[i] * static_cast<T>(1 - lr * decay) + static_cast<T>(-lr * scale) * u[i];
  }
  std::vector<double> values() const { return {p.begin(), p.end()}; }
};

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
    Reference<float> same{.lr = lr, .decay = decay};
    Reference<double> exact{.lr = lr, .decay = decay};
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
      Reference<double> exact{.lr = 0.05, .momentum = 0.8, .decay = 0.2, .nesterov = bool(mode & 1)};
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
    Reference<double> exact{.lr = 1};
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

// What the iteration promises: singular values between 0.68 and 1.14 for a matrix that is not nearly singular, so that the
// update's squares add up to about the rank.
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
  GroupCase whole(muon(), {}, host, kAllTypes[0], model()), cut(muon(), {}, host, kAllTypes[0], model());
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
}

TEST(Muon, APartOfATensorIsRefused) {
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
TEST(Muon, TensorsOfThreeDimensionsAreSeveralMatricesAndOfFourOne) {
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

TEST(Muon, VectorsEmbeddingsAndHeadsAreTrainedByAdamWBitForBit) {
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

TEST(Muon, NamesAndDimensionsDecideWhichTensorsAreAdams) {
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

TEST(Muon, ParametersThatJoinAreAdamsOnlyWhereTheSecondMomentIsKept) {
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

TEST(Muon, BothRatesFollowTheSchedule) {
  expect_rates({}, -1, 0.02, 3e-4);
  expect_rates(Dict{{"lr", 0.04}}, -1, 0.04, 0.04);
  expect_rates(Dict{{"lr", 0.04}, {"adam_lr", 1e-3}}, -1, 0.04, 1e-3);
  expect_rates(Dict{{"muon_lr", 0.1}, {"adam_lr", 1e-3}}, -1, 0.1, 1e-3);
  expect_rates({}, 0.01, 0.01, 1.5e-4);
  expect_rates(Dict{{"lr", 0.04}, {"adam_lr", 1e-3}}, 0.01, 0.01, 2.5e-4);
  expect_rates(Dict{{"lr", 0.04}, {"muon_lr", 0.1}, {"adam_lr", 1e-3}}, 0.01, 0.025, 2.5e-4);
  expect_rates(Dict{{"lr", 0.04}, {"adam_lr", 1e-3}}, 0, 0, 0);
}

TEST(Muon, TakesTheTenCombinationsOfTypesAndNoOther) {
  TestHost host;
  OptimizerUnderTest optimizer(muon(), {}, host);
  int taken = 0;
  for (uint32_t param = 0; param <= GANNET_BOOL; ++param)
    for (uint32_t grad = 0; grad <= GANNET_BOOL; ++grad)
      for (uint32_t out = 0; out <= GANNET_BOOL; ++out) taken += optimizer.supports(param, grad, out);
  EXPECT_EQ(taken, static_cast<int>(kAllTypes.size()));
}

TEST(Muon, RefusesWhatItDoesNotDoWithTheReason) {
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
