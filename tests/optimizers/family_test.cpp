// Lion, Adagrad, RMSprop and NAdam over 200 steps: beside references of their own, and beside torch::optim where it has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include <cmath>
#include <functional>
#include <iostream>

#include "optimizers/update_case.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSteps = 200;
constexpr uint64_t kNumel = 1003;

// A published rule on one element, in T, each operation rounded: the state is what it keeps of an element.
template <class T>
struct Element {
  T p = 0;
  T state[3] = {};
};
template <class T>
using RuleReference = std::function<void(Element<T>&, T gradient, uint64_t step)>;

template <class T>
T square_root(T x) {
  return std::sqrt(x);
}

template <class T>
RuleReference<T> lion(T lr, T beta1, T beta2, T decay) {
  return [=](Element<T>& e, T g, uint64_t) {
    const T c = std::fma(1 - beta1, g, beta1 * e.state[0]);
    e.p = std::fma(-lr, T((c > 0) - (c < 0)), (1 - lr * decay) * e.p);
    e.state[0] = std::fma(1 - beta2, g, beta2 * e.state[0]);
  };
}
template <class T>
RuleReference<T> adagrad(T lr, T decay, T eps, T lr_decay) {
  return [=](Element<T>& e, T gradient, uint64_t step) {
    const T g = std::fma(decay, e.p, gradient);
    e.state[0] = std::fma(g, g, e.state[0]);
    e.p = std::fma(-lr / (1 + T(step - 1) * lr_decay), g / (square_root(e.state[0]) + eps), e.p);
  };
}
template <class T>
RuleReference<T> rmsprop(double lr, double momentum, double decay, double alpha, double eps, bool centered) {
  return [=](Element<T>& e, T gradient, uint64_t) {
    const T g = std::fma(T(decay), e.p, gradient);
    e.state[0] = std::fma(T(1 - alpha) * g, g, T(alpha) * e.state[0]);
    T square = e.state[0];
    if (centered) {
      e.state[1] = std::fma(T(1 - alpha), g - e.state[1], e.state[1]);
      square = square - e.state[1] * e.state[1];
    }
    T direction = g / (square_root(square) + T(eps));
    if (momentum != 0) direction = e.state[2] = std::fma(T(momentum), e.state[2], direction);
    e.p = std::fma(T(-lr), direction, e.p);
  };
}
template <class T>
RuleReference<T> nadam(double lr, double beta1, double beta2, double decay, double eps, double psi, bool decoupled) {
  return [=](Element<T>& e, T gradient, uint64_t step) {
    const auto mu = [&](uint64_t t) { return beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * psi)); };
    double product = 1;
    for (uint64_t t = 1; t <= step; ++t) product *= mu(t);
    if (decoupled) e.p = T(1 - lr * decay) * e.p;
    const T g = decoupled ? gradient : std::fma(T(decay), e.p, gradient);
    e.state[0] = std::fma(T(1 - beta1), g - e.state[0], e.state[0]);
    e.state[1] = std::fma(T(1 - beta2) * g, g, T(beta2) * e.state[1]);
    const T root = square_root(e.state[1] / T(1 - std::pow(beta2, static_cast<double>(step)))) + T(eps);
    e.p = std::fma(T(-lr * (1 - mu(step)) / (1 - product)), g / root, e.p);
    e.p = std::fma(T(-lr * mu(step + 1) / (1 - product * mu(step + 1))), e.state[0] / root, e.p);
  };
}

// Gradients that pull to a point of each element's own, with noise.
double gradient_of(double p, uint64_t i, std::mt19937& random) {
  return 0.3 * (p - std::sin(static_cast<double>(i))) + 0.1 * std::normal_distribution<double>()(random);
}

struct Case {
  const char* file;
  const char* name;
  Dict params;
  RuleReference<float> in_float;
  RuleReference<double> in_double;
};
std::vector<Case> cases() {
  return {
      {"optimizer_lion", "Lion", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}}, lion<float>(1e-2f, 0.9f, 0.999f, 0.1f),
       lion<double>(1e-2, 0.9, 0.999, 0.1)},
      {"optimizer_adagrad", "Adagrad", Dict{{"lr", 0.1}}, adagrad<float>(0.1f, 0, 1e-10f, 0), adagrad<double>(0.1, 0, 1e-10, 0)},
      {"optimizer_adagrad", "Adagrad", Dict{{"lr", 0.1}, {"weight_decay", 0.01}, {"lr_decay", 0.01}},
       adagrad<float>(0.1f, 0.01f, 1e-10f, 0.01f), adagrad<double>(0.1, 0.01, 1e-10, 0.01)},
      {"optimizer_rmsprop", "RMSprop", Dict{{"lr", 1e-2}}, rmsprop<float>(1e-2, 0, 0, 0.99, 1e-8, false),
       rmsprop<double>(1e-2, 0, 0, 0.99, 1e-8, false)},
      {"optimizer_rmsprop", "RMSprop", Dict{{"lr", 1e-2}, {"momentum", 0.9}, {"weight_decay", 0.1}},
       rmsprop<float>(1e-2, 0.9, 0.1, 0.99, 1e-8, false), rmsprop<double>(1e-2, 0.9, 0.1, 0.99, 1e-8, false)},
      {"optimizer_nadam", "NAdam", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}},
       nadam<float>(1e-2, 0.9, 0.999, 0.1, 1e-8, 4e-3, false), nadam<double>(1e-2, 0.9, 0.999, 0.1, 1e-8, 4e-3, false)},
      {"optimizer_nadam", "NAdam", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}, {"decoupled_weight_decay", true}},
       nadam<float>(1e-2, 0.9, 0.999, 0.1, 1e-8, 4e-3, true), nadam<double>(1e-2, 0.9, 0.999, 0.1, 1e-8, 4e-3, true)},
      {"optimizer_rmsprop", "RMSprop", Dict{{"lr", 1e-2}, {"centered", true}}, rmsprop<float>(1e-2, 0, 0, 0.99, 1e-8, true),
       rmsprop<double>(1e-2, 0, 0, 0.99, 1e-8, true)},
      {"optimizer_rmsprop", "RMSprop", Dict{{"lr", 1e-2}, {"momentum", 0.9}, {"centered", true}},
       rmsprop<float>(1e-2, 0.9, 0, 0.99, 1e-8, true), rmsprop<double>(1e-2, 0.9, 0, 0.99, 1e-8, true)},
  };
}
struct Distances {
  double to_float, to_double;
};

// Relative 2-norms of ours - reference after kSteps in fp32, all fed the gradients of ours.
Distances distances_of(const Case& each) {
  TestHost host;
  const OptimizerUnderTest optimizer(LoadedPlugin(each.file, each.name), each.params, host);
  UpdateCase run({GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE}, kNumel, optimizer.states().size());
  for (auto& state : run.states)
    for (uint64_t i = 0; i < kNumel; ++i) state.set(i, 0);
  std::vector<Element<float>> floats(kNumel);
  std::vector<Element<double>> doubles(kNumel);
  for (uint64_t i = 0; i < kNumel; ++i) doubles[i].p = floats[i].p = static_cast<float>(run.param.get(i));
  std::mt19937 random(11);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    for (uint64_t i = 0; i < kNumel; ++i) {
      run.grad.set(i, gradient_of(run.param.get(i), i, random));
      each.in_float(floats[i], static_cast<float>(run.grad.get(i)), step);
      each.in_double(doubles[i], run.grad.get(i), step);
    }
    run.update(optimizer, step);
  }
  double off_float = 0, off_double = 0, norm = 0;
  for (uint64_t i = 0; i < kNumel; ++i) {
    const double p = run.param.get(i);
    off_float += (p - floats[i].p) * (p - floats[i].p);
    off_double += (p - doubles[i].p) * (p - doubles[i].p);
    norm += p * p;
  }
  const Distances found{std::sqrt(off_float / norm), std::sqrt(off_double / norm)};
  std::cout << each.name << " " << Value(each.params).to_json() << ": " << found.to_float << " off the reference in fp32, "
            << found.to_double << " off fp64\n";
  return found;
}

TEST(Family, FollowsItsReferenceFor200Steps) {
  for (const auto& each : cases()) {
    const Distances found = distances_of(each);
    EXPECT_LT(found.to_float, 1e-6) << each.name;
    // Lion takes signs: an average that rounding moves over zero is a whole step of 2 lr.
    if (std::string(each.name) != "Lion") EXPECT_LT(found.to_double, 1e-5) << each.name;
  }
}

// Beside torch::optim, which rounds in another order.
void compare_with_torch(const char* file, const char* name, const Dict& params,
                        const std::function<std::unique_ptr<torch::optim::Optimizer>(at::Tensor)>& make) {
  TestHost host;
  const OptimizerUnderTest optimizer(LoadedPlugin(file, name), params, host);
  UpdateCase run({GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE}, kNumel, optimizer.states().size());
  for (auto& state : run.states)
    for (uint64_t i = 0; i < kNumel; ++i) state.set(i, 0);
  at::Tensor theirs = torch::zeros({static_cast<int64_t>(kNumel)}).set_requires_grad(true);
  {
    const torch::NoGradGuard no_grad;
    std::memcpy(theirs.data_ptr(), run.param.at(0), kNumel * 4);
  }
  auto torchs = make(theirs);
  theirs.mutable_grad() = torch::zeros({static_cast<int64_t>(kNumel)});
  std::mt19937 random(11);
  for (uint64_t step = 1; step <= kSteps; ++step) {
    for (uint64_t i = 0; i < kNumel; ++i) run.grad.set(i, gradient_of(run.param.get(i), i, random));
    std::memcpy(theirs.mutable_grad().data_ptr(), run.grad.at(0), kNumel * 4);
    run.update(optimizer, step);
    torchs->step();
  }
  double off = 0, norm = 0;
  const float* values = theirs.const_data_ptr<float>();
  for (uint64_t i = 0; i < kNumel; ++i) {
    off += std::pow(run.param.get(i) - values[i], 2);
    norm += std::pow(run.param.get(i), 2);
  }
  EXPECT_LT(std::sqrt(off / norm), 1e-6) << name;
}

TEST(Family, TrainsAsTorchsOwn) {
  compare_with_torch("optimizer_adagrad", "Adagrad", Dict{{"lr", 0.1}, {"weight_decay", 0.01}, {"lr_decay", 0.01}},
                     [](at::Tensor p) {
                       return std::make_unique<torch::optim::Adagrad>(
                           std::vector<at::Tensor>{p}, torch::optim::AdagradOptions(0.1).weight_decay(0.01).lr_decay(0.01));
                     });
  compare_with_torch("optimizer_rmsprop", "RMSprop", Dict{{"lr", 1e-2}, {"momentum", 0.9}, {"weight_decay", 0.1}},
                     [](at::Tensor p) {
                       return std::make_unique<torch::optim::RMSprop>(
                           std::vector<at::Tensor>{p}, torch::optim::RMSpropOptions(1e-2).momentum(0.9).weight_decay(0.1));
                     });
}

TEST(Family, DeclaresTheStatesThatItsParamsNeed) {
  TestHost host;
  const auto states_of = [&](const char* file, const char* name, const Dict& params) {
    return OptimizerUnderTest(LoadedPlugin(file, name), params, host).states();
  };
  EXPECT_THAT(states_of("optimizer_lion", "Lion", {}), ElementsAre("exp_avg"));
  EXPECT_THAT(states_of("optimizer_adagrad", "Adagrad", {}), ElementsAre("sum"));
  EXPECT_THAT(states_of("optimizer_nadam", "NAdam", {}), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(states_of("optimizer_rmsprop", "RMSprop", {}), ElementsAre("square_avg"));
  EXPECT_THAT(states_of("optimizer_rmsprop", "RMSprop", Dict{{"centered", true}, {"momentum", 0.9}}),
              ElementsAre("square_avg", "grad_avg", "momentum_buffer"));
}

TEST(Family, LionStandsStillWhereAverageAndGradientAreZero) {
  TestHost host;
  const OptimizerUnderTest lion(LoadedPlugin("optimizer_lion", "Lion"), Dict{{"lr", 0.1}}, host);
  UpdateCase run({GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE}, 40, 1);
  for (uint64_t i = 0; i < run.numel; ++i) {
    run.param.set(i, 1);
    run.grad.set(i, i % 2 == 0 ? 0.0 : -0.0);
    run.states[0].set(i, 0);
  }
  run.update(lion, 1);
  for (uint64_t i = 0; i < run.numel; ++i) EXPECT_EQ(run.param.get(i), 1) << i;
}

TEST(Family, RefusesWhatItCannotDoWithASentence) {
  TestHost host;
  const auto error_of = [&](const char* file, const char* name, const Dict& params) -> std::string {
    try {
      OptimizerUnderTest(LoadedPlugin(file, name), params, host);
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  for (const auto& [file, name] : {std::pair{"optimizer_lion", "Lion"},
                                   {"optimizer_adagrad", "Adagrad"},
                                   {"optimizer_rmsprop", "RMSprop"},
                                   {"optimizer_nadam", "NAdam"}})
    EXPECT_THAT(error_of(file, name, Dict{{"max_grad_norm", 1.0}}), HasSubstr("set 'gradient_clipping'")) << name;
  EXPECT_THAT(error_of("optimizer_lion", "Lion", Dict{{"fp32_optimizer_states", false}}), HasSubstr("remove it"));
}

TEST(Family, AMomentumThatBeginsInMidRunIsAnError) {
  TestHost host;
  OptimizerUnderTest rmsprop(LoadedPlugin("optimizer_rmsprop", "RMSprop"), {}, host);
  UpdateCase run({GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE}, 8, 1);
  rmsprop.params.hyper[1] = 0.9;
  EXPECT_THROW(run.update(rmsprop, 1), std::runtime_error);
}

}  // namespace
}  // namespace gannet::test
