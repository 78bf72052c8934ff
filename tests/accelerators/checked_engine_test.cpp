// An engine on the checked device trains as on the CPU, and nothing that it does is left to chance.
#include <gannet/checkpointing.h>
#include <gannet/nn/transformer_layer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerators/checked.h"
#include "accelerators/opened.h"
#include "engine/models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

// Opened before the CPU's first backward: LibTorch starts the threads of devices there.
class CheckedEngine : public testing::Test {
 protected:
  static void SetUpTestSuite() { const Opened checked("checked"); }
};

struct TrainedThere {
  std::vector<float> losses;
  std::string plugins;
};

TrainedThere train_on(const std::string& accelerator, std::initializer_list<Dict::Entry> members) {
  auto net = make_net();
  Dict config = config_with(members);
  config["accelerator"] = Dict{{"type", accelerator}};
  auto engine = initialize(net, {.config = config}).engine;
  const at::Device device = net->parameters().front().device();
  TrainedThere trained;
  for (int step = 0; step < 8; ++step) {
    const auto [x, y] = make_batch(step, 4);
    const at::Tensor loss = engine->forward(x.to(device), y.to(device));
    trained.losses.push_back(loss.item<float>());
    engine->backward(loss);
    EXPECT_EQ(engine->step().applied, step % 2 == 1);
  }
  trained.plugins = engine->plugin_table();
  return trained;
}

TEST_F(CheckedEngine, TrainsAsOnTheCpuAtEachStage) {
  const Dict to_cpu{{"device", "cpu"}};
  for (const bool bf16 : {false, true})
    for (const Dict& zero : {Dict{{"stage", 0}}, Dict{{"stage", 1}}, Dict{{"stage", 2}}, Dict{{"stage", 3}},
                             Dict{{"stage", 1}, {"offload_optimizer", to_cpu}}, Dict{{"stage", 2}, {"offload_optimizer", to_cpu}},
                             Dict{{"stage", 3}, {"offload_optimizer", to_cpu}},
                             Dict{{"stage", 3},
                                  {"offload_optimizer", to_cpu},
                                  {"offload_param", to_cpu},
                                  {"stage3_param_persistence_threshold", 0}}}) {
      SCOPED_TRACE(Value(zero).to_json() + (bf16 ? " bf16" : ""));
      const std::initializer_list<Dict::Entry> members = {{"zero_optimization", zero},
                                                          {"gradient_accumulation_steps", 2},
                                                          {"gradient_clipping", 0.5},
                                                          {"bf16", Dict{{"enabled", bf16}}}};
      const TrainedThere here = train_on("cpu", members), there = train_on("checked", members);
      for (size_t i = 0; i < here.losses.size(); ++i) EXPECT_NEAR(there.losses[i], here.losses[i], 1e-6) << i;
      EXPECT_NE(here.losses.front(), here.losses.back());
      EXPECT_THAT(there.plugins, HasSubstr("gannet_accelerator_checked.so"));
    }
  EXPECT_EQ(counters().at("races"), 0);
}

// The norm and whether all is finite are one number that the host reads; nothing else of a micro-batch makes it wait.
TEST_F(CheckedEngine, ABoundaryMakesTheHostWaitOnce) {
  for (const int64_t stage : {0, 1, 2, 3})
    for (const char* dtype : {"fp32", "bf16", "fp16"})
      for (const double clipping : {0.0, 0.5}) {
        SCOPED_TRACE(testing::Message() << "stage " << stage << " " << dtype << " " << clipping);
        Dict config = config_with({{"accelerator", Dict{{"type", "checked"}}},
                                   {"zero_optimization", Dict{{"stage", stage}}},
                                   {"gradient_accumulation_steps", 2},
                                   {"gradient_clipping", clipping}});
        if (dtype != std::string("fp32")) config[dtype] = Dict{{"enabled", true}};
        const auto engine = initialize(make_net(), {.config = config}).engine;
        for (int step = 0; step < 6; ++step) {
          auto [x, y] = make_batch(step, 4);
          x = x.to(engine->device());
          y = y.to(engine->device());
          const int64_t before = counters().at("host_waits");
          const at::Tensor loss = engine->forward(x, y);
          engine->backward(loss);
          EXPECT_EQ(counters().at("host_waits") - before, 0) << "forward and backward of micro-batch " << step;
          const bool is_boundary = engine->step().boundary;
          EXPECT_EQ(counters().at("host_waits") - before, is_boundary) << "step() of micro-batch " << step;
        }
      }
}

// Out of memory is an error that names the call; once memory is free again, training continues bitwise.
TEST_F(CheckedEngine, MemoryThatRunsOutIsNamedAndTrainingGoesOn) {
  constexpr int64_t kBytes = 8 << 20;
  const Dict to_cpu{{"device", "cpu"}};
  const auto engine_of_bytes = [&] {
    Dict config = config_with({{"zero_optimization", Dict{{"stage", 3},
                                                          {"stage3_param_persistence_threshold", 0},
                                                          {"offload_optimizer", to_cpu},
                                                          {"offload_param", to_cpu}}}});
    config["accelerator"] = Dict{{"type", "checked"}, {"params", Dict{{"memory_bytes", kBytes}}}};
    return initialize(make_net(1, 4096), {.config = config}).engine;
  };
  const auto loss_of = [](auto& engine, int64_t index, int64_t size = 4) {
    const auto [x, y] = make_batch(index, size);
    return engine->forward(x.to(engine->device()), y.to(engine->device()));
  };
  const auto step = [&](auto& engine, int64_t index) {
    const at::Tensor loss = loss_of(engine, index);
    engine->backward(loss);
    EXPECT_TRUE(engine->step().applied);
    return loss.template item<float>();
  };
  const auto refusal_of = [](const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      return error.message();
    }
    return std::string("it succeeded");
  };
  std::vector<float> expected, losses;
  {
    const auto plain = engine_of_bytes();
    for (int64_t i = 0; i < 5; ++i) expected.push_back(step(plain, i));
  }
  const auto engine = engine_of_bytes();
  const auto without_memory = [&](const std::function<void()>& run) {
    std::vector<at::Tensor> taken;
    for (int64_t numel = kBytes; numel >= 128; numel /= 2) try {
        for (;;) taken.push_back(torch::empty({numel}, at::TensorOptions().device(engine->device()).dtype(torch::kByte)));
      } catch (const c10::OutOfMemoryError&) {  // all of it is taken
      }
    return refusal_of(run);
  };
  losses.push_back(step(engine, 0));
  const auto [x, y] = make_batch(1, 4);
  const at::Tensor there = x.to(engine->device()), target = y.to(engine->device());
  EXPECT_THAT(
      without_memory([&] { engine->forward(there, target); }),
      testing::AllOf(HasSubstr("there is not enough memory in forward:"), HasSubstr("checked device 0 is out of memory")));
  losses.push_back(step(engine, 1));
  const at::Tensor loss = loss_of(engine, 2);
  EXPECT_THAT(without_memory([&] { engine->backward(loss); }), HasSubstr("there is not enough memory in backward:"));
  losses.push_back(step(engine, 2));
  EXPECT_THAT(refusal_of([&] { loss_of(engine, 3, 4096); }), HasSubstr("not enough memory in forward:"));
  losses.push_back(step(engine, 3));
  EXPECT_THAT(without_memory([&] { engine->full_fp32_parameter("first.weight"); }),
              HasSubstr("not enough memory in full_fp32_parameter:"));
  losses.push_back(step(engine, 4));
  EXPECT_EQ(losses, expected);
}

enum class Recomputed { kNothing, kRegion, kReentrantRegion, kOperators };

struct BlockNetImpl : torch::nn::Module {
  explicit BlockNetImpl(Recomputed recomputed) : recomputed(recomputed) {
    a = register_module("a", torch::nn::Linear(8, 16));
    b = register_module("b", torch::nn::Linear(16, 16));
    c = register_module("c", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto block = [this](const at::Tensor& z) { return b(torch::dropout(torch::gelu(z), 0.1, is_training())); };
    const at::Tensor z = torch::tanh(a(x));
    const at::Tensor kept = recomputed == Recomputed::kRegion ? checkpointing::checkpoint(block, z)
                            : recomputed == Recomputed::kReentrantRegion
                                ? checkpointing::checkpoint({.use_reentrant = true}, block, z)
                                : block(z);
    return torch::mse_loss(c(kept), y);
  }
  Recomputed recomputed;
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
};

// In the device's own thread a region is computed again from parameters that are gathered on demand, with the same dropout.
TEST_F(CheckedEngine, RecomputesInTheDevicesThreadAtStage3) {
  const Dict to_cpu{{"device", "cpu"}};
  std::vector<float> expected;
  for (const auto recomputed : {Recomputed::kNothing, Recomputed::kRegion, Recomputed::kReentrantRegion, Recomputed::kOperators})
    for (const bool offloads : {false, true}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(recomputed)) + (offloads ? " offloaded" : ""));
      Dict zero{{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
      if (offloads) zero["offload_optimizer"] = zero["offload_param"] = to_cpu;
      Dict config = config_with({{"zero_optimization", zero}});
      config["accelerator"] = Dict{{"type", "checked"}};
      if (recomputed == Recomputed::kOperators)
        config["gannet"] = Dict{{"activation_checkpointing", Dict{{"recompute", List{"gelu"}}}}};
      torch::manual_seed(1);
      const auto engine = initialize(std::make_shared<BlockNetImpl>(recomputed), {.config = config}).engine;
      std::vector<float> losses;
      for (int64_t step = 0; step < 4; ++step) {
        const auto [x, y] = make_batch(step, 4);
        const at::Tensor loss = engine->forward(x.to(kChecked), y.to(kChecked));
        losses.push_back(loss.item<float>());
        engine->backward(loss);
        EXPECT_TRUE(engine->step().applied);
      }
      if (!offloads) EXPECT_EQ(losses, expected.empty() ? expected = losses : expected);
      for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-6) << i;
    }
}

TEST_F(CheckedEngine, HasTheOptimizersOfTheCpu) {
  for (const char* type : {"Adam", "AdamW", "SGD", "Lion", "Adagrad", "RMSprop", "NAdam", "AdamWScheduleFree", "Lamb",
                           "Adafactor", "AdamW8bit", "Muon"}) {
    SCOPED_TRACE(type);
    for (const int64_t stage : {0, 2}) {
      const std::initializer_list<Dict::Entry> members = {{"optimizer", Dict{{"type", type}, {"params", Dict{{"lr", 1e-3}}}}},
                                                          {"gradient_accumulation_steps", 2},
                                                          {"zero_optimization", Dict{{"stage", stage}}}};
      const TrainedThere here = train_on("cpu", members), there = train_on("checked", members);
      for (size_t i = 0; i < here.losses.size(); ++i) EXPECT_NEAR(there.losses[i], here.losses[i], 1e-6) << i;
      EXPECT_NE(here.losses.front(), here.losses.back());
    }
  }
}

// A gradient at perturbed parameters, and a second gradient of another loss.
TEST_F(CheckedEngine, TakesStepsOfTwoPasses) {
  const auto losses_on = [](const char* accelerator, const char* type, int64_t stage) {
    const auto engine = initialize(make_net(), {.config = config_with({{"accelerator", Dict{{"type", accelerator}}},
                                                                       {"optimizer", Dict{{"type", type}}},
                                                                       {"zero_optimization", Dict{{"stage", stage}}}})})
                            .engine;
    std::vector<float> losses;
    for (int64_t step = 0; step < 5; ++step) {
      const auto pass = [&](int64_t index) {
        const auto [x, y] = make_batch(index, 4);
        const at::Tensor loss = engine->forward(x.to(engine->device()), y.to(engine->device()));
        losses.push_back(loss.item<float>());
        engine->backward(loss);
      };
      if (type == std::string("SAM") || engine->wants_second_gradient()) {
        pass(step + 100);
        type == std::string("SAM") ? engine->perturb() : engine->keep_second_gradient();
      }
      pass(step);
      EXPECT_TRUE(engine->step().applied);
    }
    return losses;
  };
  for (const char* type : {"SAM", "Sophia"})
    for (const int64_t stage : {0, 2}) {
      SCOPED_TRACE(testing::Message() << type << " at stage " << stage);
      const auto here = losses_on("cpu", type, stage), there = losses_on("checked", type, stage);
      ASSERT_EQ(there.size(), here.size());
      for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-6) << i;
    }
}

// The CPU has kernels of its own; the device has LibTorch's operators, and drops the same elements.
TEST_F(CheckedEngine, HasTheTransformerLayer) {
  const auto engine_on = [](const std::string& accelerator) {
    nn::TransformerLayerConfig config;
    config.hidden_size = 24;
    config.heads = 3;
    config.attn_dropout_ratio = config.hidden_dropout_ratio = 0.1;
    config.num_hidden_layers = 1;
    torch::manual_seed(5);
    return initialize(std::make_shared<nn::TransformerLayerImpl>(config),
                      {.config = config_with({{"accelerator", Dict{{"type", accelerator}}}})})
        .engine;
  };
  const auto losses_on = [&](const std::string& accelerator) {
    const auto engine = engine_on(accelerator);
    std::vector<float> losses;
    torch::manual_seed(6);
    for (int step = 0; step < 4; ++step) {
      const at::Tensor x = torch::randn({2, 9, 24}), mask = torch::ones({2, 1, 1, 9}, torch::kBool);
      const at::Tensor loss = engine->forward(x.to(engine->device()), mask.to(engine->device())).pow(2).mean();
      losses.push_back(loss.item<float>());
      engine->backward(loss);
      EXPECT_TRUE(engine->step().applied);
    }
    return losses;
  };
  const std::vector<float> here = losses_on("cpu"), there = losses_on("checked");
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-5) << i;
  EXPECT_NE(here.front(), here.back());
}

}  // namespace
}  // namespace gannet::test
