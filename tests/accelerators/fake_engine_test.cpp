// An engine on the fake device is an engine on the CPU, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"

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
