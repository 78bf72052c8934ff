#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optimizers/update_case.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const LoadedPlugin& sgd() {
  static const LoadedPlugin plugin("optimizer_sgd", "SGD");
  return plugin;
}

// torch.optim.SGD's documented pseudo-code, in double.
struct SgdReference {
  double lr, momentum, dampening, decay;
  bool nesterov, maximize;

  void update(double& p, double& buffer, double g, uint64_t step) const {
    if (maximize) g = -g;
    g += decay * p;
    if (momentum != 0) {
      buffer = step > 1 ? momentum * buffer + (1 - dampening) * g : g;
      g = nesterov ? g + momentum * buffer : buffer;
    }
    p -= lr * g;
  }
};

TEST(Sgd, FollowsTorchsPseudoCodeInEveryModeAndType) {
  const std::vector<SgdReference> references = {{0.1, 0, 0, 0, false, false},       {0.1, 0, 0, 0.2, false, false},
                                                {0.1, 0, 0, 0.2, false, true},      {0.1, 0.9, 0, 0, false, false},
                                                {0.1, 0.9, 0.5, 0.1, false, false}, {0.1, 0.9, 0, 0.1, true, false},
                                                {0.1, 0.9, 0, 0.1, true, true}};
  for (const auto& reference : references) {
    for (const auto& types : kAllTypes) {
      TestHost host;
      OptimizerUnderTest optimizer(sgd(),
                                   Dict{{"lr", reference.lr},
                                        {"momentum", reference.momentum},
                                        {"dampening", reference.dampening},
                                        {"weight_decay", reference.decay},
                                        {"nesterov", reference.nesterov},
                                        {"maximize", reference.maximize}},
                                   host);
      UpdateCase run(types, 77, optimizer.states().size());  // the buffer begins with rubbish: the first step must not read it
      std::vector<double> p, buffer(run.numel);
      for (uint64_t i = 0; i < run.numel; ++i) p.push_back(run.param.get(i));
      std::mt19937 random(5);
      std::normal_distribution<double> normal;
      for (uint64_t step = 1; step <= 20; ++step) {
        for (uint64_t i = 0; i < run.numel; ++i) {
          run.grad.set(i, normal(random));
          reference.update(p[i], buffer[i], run.grad.get(i), step);
        }
        run.update(optimizer, step);
      }
      // Momentum amplifies a rounding by at most 1 / (1 - 0.9).
      const double unit = types.param == GANNET_FLOAT64 ? 0x1p-53 : 0x1p-24;
      for (uint64_t i = 0; i < run.numel; ++i) ASSERT_NEAR(run.param.get(i), p[i], 20 * 10 * unit * (1 + std::abs(p[i]))) << i;
    }
  }
}

TEST(Sgd, KeepsABufferOnlyWithMomentum) {
  TestHost host;
  EXPECT_THAT(OptimizerUnderTest(sgd(), {}, host).states(), IsEmpty());
  EXPECT_THAT(OptimizerUnderTest(sgd(), Dict{{"momentum", 0.9}}, host).states(), ElementsAre("momentum_buffer"));
}

TEST(Sgd, SaysThatMomentumCannotBeTurnedOnLater) {
  TestHost host;
  OptimizerUnderTest optimizer(sgd(), {}, host);
  optimizer.params.hyper[1] = 0.9;
  UpdateCase run(kAllTypes[0], 4, 0);
  try {
    run.update(optimizer, 1);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("momentum was changed from 0"));
  }
}

TEST(Sgd, RefusesNesterovWithoutMomentumAndWithDampening) {
  TestHost host;
  for (const Dict& params : {Dict{{"nesterov", true}}, Dict{{"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.1}}}) {
    try {
      OptimizerUnderTest optimizer(sgd(), params, host);
      FAIL();
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("'nesterov' needs a 'momentum' above 0"));
    }
  }
}

TEST(Sgd, ConvergesOnAQuadratic) {
  TestHost host;
  OptimizerUnderTest optimizer(sgd(), Dict{{"lr", 0.02}, {"momentum", 0.9}}, host);
  UpdateCase run({GANNET_FLOAT32, GANNET_FLOAT32, GANNET_BFLOAT16}, 10, 1);
  for (uint64_t step = 1; step <= 500; ++step) {
    for (uint64_t i = 0; i < run.numel; ++i)
      run.grad.set(i, static_cast<double>(i + 1) * (run.param.get(i) - static_cast<double>(i)));
    run.update(optimizer, step);
  }
  for (uint64_t i = 0; i < run.numel; ++i) EXPECT_NEAR(run.param.get(i), static_cast<double>(i), 1e-4);
}

}  // namespace
}  // namespace gannet::test
