// An engine on the checked device trains as on the CPU, and nothing that it does is left to chance.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"
#include "plugin/plugin.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

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

TEST(CheckedEngine, TrainsAsOnTheCpuAtEachStage) {
  const Dict to_cpu{{"device", "cpu"}};
  for (const bool bf16 : {false, true})
    for (const Dict& zero :
         {Dict{{"stage", 0}}, Dict{{"stage", 1}}, Dict{{"stage", 2}}, Dict{{"stage", 3}},
          Dict{{"stage", 1}, {"offload_optimizer", to_cpu}}, Dict{{"stage", 2}, {"offload_optimizer", to_cpu}},
          Dict{{"stage", 3}, {"offload_optimizer", to_cpu}},
          Dict{{"stage", 3}, {"offload_optimizer", to_cpu}, {"offload_param", to_cpu}, {"stage3_param_persistence_threshold", 0}}}) {
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
  const auto figures = c10::Dispatcher::singleton().findSchemaOrThrow("gannet_checked::counters", "");
  EXPECT_EQ((figures.typed<c10::Dict<std::string, int64_t>()>().call().at("races")), 0);
}

TEST(CheckedEngine, HasTheOptimizersOfTheCpu) {
  plugin::Registry registry({});
  for (const char* type : {"Adam", "AdamW", "SGD", "Lion", "Adagrad", "RMSprop", "NAdam", "AdamWScheduleFree", "Lamb", "Adafactor",
                           "AdamW8bit", "Muon"}) {
    SCOPED_TRACE(type);
    for (const int64_t stage : {0, 2}) {
      const std::initializer_list<Dict::Entry> members = {
          {"optimizer", Dict{{"type", type}, {"params", Dict{{"lr", 1e-3}}}}},
          {"gradient_accumulation_steps", 2},
          {"zero_optimization", Dict{{"stage", stage}}}};
      const TrainedThere here = train_on("cpu", members), there = train_on("checked", members);
      for (size_t i = 0; i < here.losses.size(); ++i) EXPECT_NEAR(there.losses[i], here.losses[i], 1e-6) << i;
      EXPECT_NE(here.losses.front(), here.losses.back());
    }
  }
  for (const char* type : {"Sophia", "SAM"}) EXPECT_TRUE(registry.find(GANNET_KIND_OPTIMIZER, type, "checked")) << type;
}

}  // namespace
}  // namespace gannet::test
