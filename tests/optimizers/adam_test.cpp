#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optimizers/update_case.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const LoadedPlugin& adam_plugin() {
  static const LoadedPlugin plugin("optimizer_adam", "Adam");
  return plugin;
}
const LoadedPlugin& adamw_plugin() {
  static const LoadedPlugin plugin("optimizer_adam", "AdamW");
  return plugin;
}

// The formula as the paper writes it, in double, one number at a time. The betas of an fp32 run are fp32 numbers: 1 - 0.999
// is not what it is in fp64. (torch rounds 1 - beta instead, which is as far from the paper in another way.)
struct AdamReference {
  double lr = 1e-3, decay = 0;
  bool decoupled = true, bias_correction = true, torch = false;
  double eps = 1e-8, beta1 = 0.9, beta2 = 0.999, take1 = 1 - beta1, take2 = 1 - beta2, keep1 = beta1, keep2 = beta2;

  AdamReference rounded_to_fp32() const {
    AdamReference r = *this;
    r.keep1 = static_cast<float>(beta1);
    r.keep2 = static_cast<float>(beta2);
    r.take1 = torch ? static_cast<float>(take1) : 1 - r.keep1;
    r.take2 = torch ? static_cast<float>(take2) : 1 - r.keep2;
    if (!torch) r.beta1 = r.keep1, r.beta2 = r.keep2;
    return r;
  }
  void update(double& p, double& m, double& v, double g, uint64_t step) const {
    if (!decoupled) g += decay * p;
    m = keep1 * m + take1 * g;
    v = keep2 * v + take2 * g * g;
    const double m_hat = bias_correction ? m / (1 - std::pow(beta1, step)) : m;
    const double v_hat = bias_correction ? v / (1 - std::pow(beta2, step)) : v;
    double u = m_hat / (std::sqrt(v_hat) + eps);
    if (decoupled) u += decay * p;
    p -= lr * u;
  }
};

struct Mode {
  const char* type;
  Dict params;
  AdamReference reference;
};
std::vector<Mode> modes() {
  const double lr = 0.02, decay = 0.3;
  std::vector<Mode> modes;
  auto add = [&](const char* type, Dict params, bool decoupled, bool correct, double weight_decay) {
    params["lr"] = lr;
    modes.push_back({type,
                     params,
                     {.lr = lr,
                      .decay = weight_decay,
                      .decoupled = decoupled,
                      .bias_correction = correct,
                      .torch = params.find("torch_adam") != nullptr}});
  };
  add("Adam", {}, true, true, 0);
  add("Adam", Dict{{"weight_decay", decay}}, true, true, decay);
  add("Adam", Dict{{"weight_decay", decay}, {"adam_w_mode", false}}, false, true, decay);
  add("Adam", Dict{{"bias_correction", false}}, true, false, 0);
  add("AdamW", Dict{{"weight_decay", decay}}, true, true, decay);
  add("AdamW", Dict{{"weight_decay", decay}, {"adam_w_mode", false}}, true, true, decay);
  add("AdamW", Dict{{"torch_adam", true}}, true, true, 0.01);
  add("AdamW", Dict{{"torch_adam", true}, {"weight_decay", decay}}, true, true, decay);
  add("Adam", Dict{{"torch_adam", true}, {"weight_decay", decay}, {"adam_w_mode", false}}, false, true, decay);
  return modes;
}

// Twenty steps. Each rounds a handful of times: parameter within 20 steps x 8 roundings of its own size and of the updates'.
TEST(Adam, FollowsThePaperInEveryModeAndType) {
  for (const auto& mode : modes()) {
    for (const auto& types : kAllTypes) {
      TestHost host;
      OptimizerUnderTest optimizer(std::string(mode.type) == "Adam" ? adam_plugin() : adamw_plugin(), mode.params, host);
      ASSERT_THAT(optimizer.states(), ElementsAre("exp_avg", "exp_avg_sq"));
      UpdateCase run(types, 77, 2);
      for (auto& state : run.states)
        for (uint64_t i = 0; i < run.numel; ++i) state.set(i, 0);
      std::vector<double> p, m(run.numel), v(run.numel);
      for (uint64_t i = 0; i < run.numel; ++i) p.push_back(run.param.get(i));
      const AdamReference reference = types.param == GANNET_FLOAT64 ? mode.reference : mode.reference.rounded_to_fp32();
      std::mt19937 random(5);
      std::normal_distribution<double> normal;
      for (uint64_t step = 1; step <= 20; ++step) {
        for (uint64_t i = 0; i < run.numel; ++i) {
          run.grad.set(i, normal(random));
          reference.update(p[i], m[i], v[i], run.grad.get(i), step);
        }
        run.update(optimizer, step);
      }
      const double unit = types.param == GANNET_FLOAT64 ? 0x1p-53 : 0x1p-24;
      for (uint64_t i = 0; i < run.numel; ++i) {
        ASSERT_NEAR(run.param.get(i), p[i], 20 * 8 * unit * (std::abs(p[i]) + mode.reference.lr))
            << mode.type << " element " << i;
        ASSERT_NEAR(run.states[0].get(i), m[i], 20 * 4 * unit) << mode.type;
        ASSERT_NEAR(run.states[1].get(i), v[i], 20 * 4 * unit) << mode.type;
      }
    }
  }
}

// By hand: m = 0.05, v = 0.00025, both corrected to g = 0.5 and g^2, so u = 1 (less eps) and p = 1 - 0.1 (1 + 0.01).
TEST(Adam, FirstStepMovesByTheLearningRateAndTheDecay) {
  TestHost host;
  OptimizerUnderTest optimizer(adamw_plugin(), Dict{{"lr", 0.1}, {"weight_decay", 0.01}}, host);
  UpdateCase one({GANNET_FLOAT64, GANNET_FLOAT64, GANNET_DTYPE_NONE}, 1, 2);
  one.param.set(0, 1);
  one.grad.set(0, 0.5);
  for (auto& state : one.states) state.set(0, 0);
  one.update(optimizer, 1);
  EXPECT_NEAR(one.param.get(0), 1 - 0.1 * (0.5 / (0.5 + 1e-8) + 0.01), 1e-15);
  EXPECT_NEAR(one.states[0].get(0), 0.05, 1e-16);
  EXPECT_NEAR(one.states[1].get(0), 0.00025, 1e-18);
}

TEST(Adam, UsesTheHyperparametersOfTheCallNotThoseOfTheConfig) {
  TestHost host;
  OptimizerUnderTest configured(adamw_plugin(), Dict{{"lr", 0.5}, {"betas", List{0.8, 0.95}}, {"weight_decay", 0.2}}, host);
  OptimizerUnderTest changed(adamw_plugin(), {}, host);
  EXPECT_THAT(configured.params.hyper, ElementsAre(0.5, 0.8, 0.95, 0.2));  // the order of declaration
  changed.params.hyper = configured.params.hyper;
  UpdateCase a(kAllTypes[0], 50, 2), b = a;
  a.update(configured, 4);
  b.update(changed, 4);
  EXPECT_TRUE(a.same_result(b));
}

TEST(Adam, ConvergesOnAQuadratic) {
  for (const auto& types : kAllTypes) {
    TestHost host;
    OptimizerUnderTest optimizer(adam_plugin(), Dict{{"lr", 0.05}}, host);
    UpdateCase run(types, 10, 2);
    for (auto& state : run.states)
      for (uint64_t i = 0; i < run.numel; ++i) state.set(i, 0);
    for (uint64_t step = 1; step <= 2000; ++step) {  // 1/2 i (p - i)^2
      for (uint64_t i = 0; i < run.numel; ++i)
        run.grad.set(i, static_cast<double>(i + 1) * (run.param.get(i) - static_cast<double>(i)));
      run.update(optimizer, step);
    }
    for (uint64_t i = 0; i < run.numel; ++i) EXPECT_NEAR(run.param.get(i), static_cast<double>(i), 1e-3);
  }
}

std::string refusal(const LoadedPlugin& plugin, const Dict& params) {
  TestHost host;
  try {
    OptimizerUnderTest optimizer(plugin, params, host);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "created";
}

TEST(Adam, RefusesWhatItDoesNotDoWithTheReason) {
  EXPECT_THAT(refusal(adam_plugin(), Dict{{"amsgrad", true}}), HasSubstr("'amsgrad' is true, but this Adam has no AMSGrad"));
  EXPECT_THAT(refusal(adam_plugin(), Dict{{"fp32_optimizer_states", false}}), HasSubstr("'fp32_optimizer_states' is false"));
  EXPECT_THAT(refusal(adamw_plugin(), Dict{{"max_grad_norm", 1.0}}), HasSubstr("set 'gradient_clipping' at the top level"));
  EXPECT_THAT(refusal(adamw_plugin(), Dict{{"torch_adam", true}, {"bias_correction", false}}), HasSubstr("remove one of"));
  EXPECT_EQ(refusal(adam_plugin(), Dict{{"set_grad_none", false}, {"max_grad_norm", nullptr}}), "created");
}

TEST(Adam, SaysThatTypeAdamWIgnoresAdamWMode) {
  TestHost host;
  OptimizerUnderTest ignored(adamw_plugin(), Dict{{"adam_w_mode", false}}, host);
  EXPECT_THAT(host.logged, ElementsAre(HasSubstr("ignores \"adam_w_mode\": false")));
  host.logged.clear();
  OptimizerUnderTest heard(adam_plugin(), Dict{{"adam_w_mode", false}}, host);
  EXPECT_THAT(host.logged, IsEmpty());
}

}  // namespace
}  // namespace gannet::test
