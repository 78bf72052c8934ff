// torch_autocast and amp: the bits of a loop that a program would write with LibTorch's autocast and a loss scale of its own.
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "models.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

bool is_autocast() { return at::autocast::is_autocast_enabled(at::kCPU); }

// Tied weights, of which autocast keeps one cast copy, and operators of both of its lists.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(8, 16));
    middle = register_module("middle", torch::nn::Linear(16, 16));
    last = register_module("last", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    if (throws) throw std::runtime_error("the program's own");
    types.clear();
    at::Tensor h = first(x);
    types.push_back(h.scalar_type());
    h = torch::tanh(middle(torch::tanh(h)));
    h = torch::softmax(torch::matmul(h, middle->weight.t()), -1);
    types.push_back(torch::mse_loss(h, h).scalar_type());
    return torch::mse_loss(last(h).to(at::kFloat), y);
  }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
  bool throws = false;
  std::vector<at::ScalarType> types;
};

std::vector<at::Tensor> data_of(int step) {
  auto [x, y] = make_batch(step, 4);
  return {x, y};
}

std::vector<at::Tensor> values_of(MixedImpl& net) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : net.parameters()) result.push_back(parameter.detach().clone());
  return result;
}

// The hand-written loop: autocast around forward, the loss times `scale`, gradients divided by it.
std::vector<at::Tensor> by_hand(at::ScalarType dtype, double scale, int steps) {
  auto net = std::make_shared<MixedImpl>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < steps; ++step) {
    const auto data = data_of(step);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    const at::Tensor loss = net->forward(data[0], data[1]);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    (loss * scale).backward();
    for (auto& parameter : net->parameters()) parameter.mutable_grad().div_(scale);
    optimizer.step();
    optimizer.zero_grad();
  }
  return values_of(*net);
}

Dict sgd_config(std::initializer_list<Dict::Entry> more) {
  Dict config = config_with({{"gradient_clipping", 0.0}});
  config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.1}}}};
  for (const auto& [key, value] : more) config[key] = value;
  return config;
}

std::vector<at::Tensor> by_engine(const Dict& config, int steps) {
  auto net = std::make_shared<MixedImpl>();
  auto engine = initialize(net, {.config = config}).engine;
  for (int step = 0; step < steps; ++step) {
    const auto data = data_of(step);
    engine->backward(engine->forward(data[0], data[1]));
    EXPECT_TRUE(engine->step().applied);
    EXPECT_FALSE(is_autocast());
  }
  return values_of(*net);
}

void expect_equal_parameters(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                             const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(torch::equal(found[i], expected[i])) << what << ", parameter " << i;
}

Dict autocast_in(const char* dtype) { return Dict{{"enabled", true}, {"dtype", dtype}}; }

TEST(Autocast, InBf16IsALoopByHandToTheBit) {
  expect_equal_parameters(by_engine(sgd_config({{"torch_autocast", autocast_in("bf16")}}), 12), by_hand(at::kBFloat16, 1, 12),
                          "bf16");
}

TEST(Autocast, InFp16ScalesTheLoss) {
  const Dict fp16{{"enabled", false}, {"loss_scale", 256}};
  const auto expected = by_hand(at::kHalf, 256, 12);
  expect_equal_parameters(by_engine(sgd_config({{"torch_autocast", autocast_in("fp16")}, {"fp16", fp16}}), 12), expected,
                          "torch_autocast");
  expect_equal_parameters(by_engine(sgd_config({{"amp", Dict{{"enabled", true}}}, {"fp16", fp16}}), 12), expected, "amp O1");
}

TEST(Autocast, IsTheSameAtEveryStageAndWithRecomputation) {
  const auto expected = by_engine(sgd_config({{"torch_autocast", autocast_in("bf16")}}), 8);
  for (const int64_t stage : {1, 2, 3})
    for (const char* place : {"none", "cpu"}) {
      Dict zero{{"stage", stage}, {"offload_optimizer", Dict{{"device", place}}}};
      if (stage == 3) {
        zero["offload_param"] = Dict{{"device", place}};
        zero["stage3_param_persistence_threshold"] = 0;
      }
      Dict config = sgd_config({{"torch_autocast", autocast_in("bf16")}, {"zero_optimization", zero}});
      const std::string what = "stage " + std::to_string(stage) + ", " + place;
      auto net = std::make_shared<MixedImpl>();
      auto engine = initialize(net, {.config = config}).engine;
      for (int step = 0; step < 8; ++step) {
        const auto data = data_of(step);
        engine->backward(engine->forward(data[0], data[1]));
        EXPECT_TRUE(engine->step().applied);
      }
      size_t i = 0;
      for (const auto& [name, master] : engine->fp32_parameters())
        EXPECT_TRUE(torch::equal(master, expected[i++])) << what << name;
    }
  Dict config = sgd_config({{"torch_autocast", autocast_in("bf16")}});
  config["gannet"] = Dict{{"activation_checkpointing", Dict{{"recompute", List{"tanh", "softmax"}}}}};
  expect_equal_parameters(by_engine(config, 8), expected, "recomputed by operator");
}

TEST(Autocast, ParametersStayFp32AndOperatorsChoose) {
  auto net = std::make_shared<MixedImpl>();
  auto engine = initialize(net, {.config = sgd_config({{"torch_autocast", Dict{{"enabled", true}}}})}).engine;
  const auto data = data_of(0);
  engine->forward(data[0], data[1]);
  EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
  EXPECT_THAT(net->types, testing::ElementsAre(at::kBFloat16, at::kFloat)) << "bf16 is the CPU's own; losses are in fp32";
  EXPECT_EQ(engine->loss_scale(), 1);
}

TEST(Autocast, EndsWithForwardAlsoAfterAnException) {
  auto net = std::make_shared<MixedImpl>();
  auto engine = initialize(net, {.config = sgd_config({{"torch_autocast", autocast_in("fp16")}})}).engine;
  const auto data = data_of(0);
  net->throws = true;
  EXPECT_THROW(engine->forward(data[0], data[1]), std::runtime_error);
  EXPECT_FALSE(is_autocast());
  net->throws = false;
  {
    torch::NoGradGuard no_grad;
    engine->forward(data[0], data[1]);
    EXPECT_EQ(net->types[0], at::kHalf) << "an evaluation, too";
  }
  // The program's own autocast is as it was.
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  engine->forward(data[0], data[1]);
  EXPECT_TRUE(is_autocast());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(Autocast, AnInferenceEngineHasItToo) {
  auto net = std::make_shared<MixedImpl>();
  Dict config = config_with({{"torch_autocast", autocast_in("bf16")}});
  config.erase("optimizer");
  auto engine = initialize(net, {.config = config}).engine;
  torch::NoGradGuard no_grad;
  const auto data = data_of(0);
  engine->forward(data[0], data[1]);
  EXPECT_EQ(net->types[0], at::kBFloat16);
}

TEST(Amp, ADynamicScaleSkipsOverflowsAndIsResumed) {
  const Dict config = sgd_config({{"amp", Dict{{"enabled", true}, {"opt_level", "O1"}, {"loss_scale", "dynamic"}}},
                                  {"fp16", Dict{{"initial_scale_power", 15}, {"hysteresis", 1}}}});
  auto net = std::make_shared<MixedImpl>();
  auto engine = initialize(net, {.config = config}).engine;
  bool poison = true;
  net->first->bias.register_hook([&](at::Tensor grad) { return poison ? grad / 0 : grad; });
  const auto data = data_of(0);
  engine->backward(engine->forward(data[0], data[1]));
  const StepResult result = engine->step();
  EXPECT_FALSE(result.applied);
  EXPECT_THAT(result.reason, HasSubstr("the loss scale goes from 32768 to 16384"));
  poison = false;
  engine->backward(engine->forward(data[0], data[1]));
  EXPECT_TRUE(engine->step().applied);
  const TemporaryFolder folder;
  engine->save_checkpoint(folder.string());
  auto again = initialize(std::make_shared<MixedImpl>(), {.config = config}).engine;
  again->load_checkpoint(folder.string());
  EXPECT_EQ(again->loss_scale(), 16384);
}

TEST(Amp, LevelsChooseTypesAndScale) {
  struct Expected {
    const char* level;
    at::ScalarType parameters, product;
    double scale;
  };
  for (const auto& one : {Expected{"O0", at::kFloat, at::kFloat, 1}, Expected{"O1", at::kFloat, at::kHalf, 65536},
                          Expected{"O2", at::kHalf, at::kHalf, 65536}, Expected{"O3", at::kHalf, at::kHalf, 1}}) {
    auto net = std::make_shared<MixedImpl>();
    auto engine = initialize(net, {.config = sgd_config({{"amp", Dict{{"enabled", true}, {"opt_level", one.level}}}})}).engine;
    EXPECT_EQ(net->first->weight.scalar_type(), one.parameters) << one.level;
    const auto data = data_of(0);
    const at::Tensor loss = engine->forward(data[0].to(one.parameters), data[1]);
    EXPECT_EQ(net->types[0], one.product) << one.level;
    EXPECT_EQ(engine->loss_scale(), one.scale) << one.level;
    engine->backward(loss);
    engine->step();
    EXPECT_EQ(engine->fp32_parameters().begin()->second.scalar_type(), at::kFloat) << one.level;
  }
}

}  // namespace
}  // namespace gannet::test
