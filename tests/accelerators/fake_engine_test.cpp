// An engine on the fake device is an engine on the CPU, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/world.h"
#include "engine/models.h"
#include "interfaces/comm.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Trained {
  std::vector<float> losses;
  at::Tensor parameters;
  std::string plugins;
};

Trained train(const Dict& accelerator, std::initializer_list<Dict::Entry> members) {
  auto net = make_net();
  Dict config = config_with(members);
  config["accelerator"] = accelerator;
  auto engine = initialize(net, {.config = config}).engine;
  Trained trained;
  for (int step = 0; step < 8; ++step) {
    auto [x, y] = make_batch(step, 4);
    const at::Tensor loss = engine->forward(x, y);
    trained.losses.push_back(loss.item<float>());
    engine->backward(loss);
    engine->step();
  }
  trained.parameters = flat_parameters(*net);
  trained.plugins = engine->plugin_table();
  return trained;
}

TEST(FakeEngine, TrainsToTheBitsOfTheCpu) {
  const Dict fake{{"type", "fake"}, {"params", Dict{{"delay_us", 200}}}};
  const Dict schedule{{"type", "WarmupLR"}, {"params", Dict{{"warmup_num_steps", 4}}}};
  for (const bool bf16 : {false, true}) {
    const std::initializer_list<Dict::Entry> members = {{"gradient_accumulation_steps", 2},
                                                        {"gradient_clipping", 0.5},
                                                        {"scheduler", schedule},
                                                        {"bf16", Dict{{"enabled", bf16}}}};
    const Trained there = train(fake, members), here = train(Dict{{"type", "cpu"}}, members);
    EXPECT_EQ(there.losses, here.losses);
    EXPECT_TRUE(torch::equal(there.parameters, here.parameters));
    EXPECT_NE(here.losses.front(), here.losses.back());
    EXPECT_THAT(there.plugins, HasSubstr("gannet_accelerator_fake.so"));
    EXPECT_THAT(there.plugins, HasSubstr("gannet_optimizer_adam.so"));
  }
}

// The Comm of one rank is the host's: it cannot read a device's memory, which this one only pretends to have. So it is given
// none.
TEST(FakeEngine, AloneItGivesNothingToItsComm) {
  const Dict to_cpu{{"device", "cpu"}};
  for (const Dict& zero : {Dict{{"stage", 0}}, Dict{{"stage", 1}}, Dict{{"stage", 2}, {"offload_optimizer", to_cpu}},
                           Dict{{"stage", 3}}, Dict{{"stage", 3}, {"offload_optimizer", to_cpu}, {"offload_param", to_cpu}}}) {
    Dict config = config_with({{"zero_optimization", zero}, {"bf16", Dict{{"enabled", true}}}});
    config["accelerator"] = Dict{{"type", "fake"}};
    const auto net = make_net();
    const auto engine = initialize(net, {.config = config}).engine;
    Comm& comm = engine->process_group()->links().device().comm();
    EXPECT_EQ(comm.plugin().device(), "cpu");
    const uint64_t before = comm.counters().calls;
    const at::Tensor first = engine->full_fp32_parameter("first.weight");
    for (int step = 0; step < 3; ++step) {
      const auto [x, y] = make_batch(step, 4);
      engine->backward(engine->forward(x, y));
      EXPECT_TRUE(engine->step().applied);
    }
    engine->set_full_fp32_parameter("first.weight", first);
    engine->refresh_masters();
    EXPECT_EQ(engine->fp32_parameters().size(), 4u);
    zero::GatheredParameters(*engine, net->parameters(), {.write_from = 0}).publish();
    EXPECT_EQ(comm.counters().calls, before) << Value(zero).to_json();
  }
}

TEST(FakeEngine, IsNeverChosenByAuto) {
  const auto engine = initialize(make_net(), {.config = config_with({{"accelerator", Dict{{"type", "auto"}}}})}).engine;
  EXPECT_THAT(engine->plugin_table(), Not(HasSubstr("gannet_accelerator_fake")));
}

TEST(FakeEngine, ItsParametersAreCheckedWhereTheyStand) {
  try {
    train(Dict{{"type", "fake"}, {"params", Dict{{"delay_u", 3}}}}, {});
    FAIL() << "an unknown parameter passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'delay_us'"));
  }
}

}  // namespace
}  // namespace gannet::test
