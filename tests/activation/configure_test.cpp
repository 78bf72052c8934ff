// checkpointing::configure and the tracker of random streams, without an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "activation/blocks.h"
#include "activation/configuration.h"
#include "activation/error_of.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;
using checkpointing::configure;
using checkpointing::rng_tracker;
using ::testing::HasSubstr;

class Configure : public testing::Test {
 protected:
  void TearDown() override {
    checkpointing::reset();
    rng_tracker().reset();
  }
};
using RngTracker = Configure;

TEST_F(Configure, ArgumentsGoBeforeTheConfig) {
  EXPECT_FALSE(checkpointing::is_configured());
  EXPECT_EQ(activation::in_force(), nullptr);
  const Config config(Dict{{"activation_checkpointing", Dict{{"cpu_checkpointing", true}}}});
  configure({.deepspeed_config = config});
  EXPECT_TRUE(checkpointing::is_configured());
  EXPECT_TRUE(activation::in_force()->settings.cpu_checkpointing);
  EXPECT_NE(activation::in_force()->inputs, nullptr);
  configure({.deepspeed_config = config, .partition_activations = true, .checkpoint_in_cpu = false});
  EXPECT_FALSE(activation::in_force()->settings.cpu_checkpointing);
  EXPECT_TRUE(activation::in_force()->settings.partition_activations);
  EXPECT_EQ(activation::in_force()->inputs, nullptr) << "one rank has nothing to share";
  checkpointing::partition_activations_in_checkpoint(false);
  EXPECT_FALSE(activation::in_force()->settings.partition_activations);
  checkpointing::reset();
  EXPECT_FALSE(checkpointing::is_configured());
  EXPECT_EQ(activation::in_force(), nullptr);
}

TEST_F(Configure, IsRefusedWhileARegionWaitsForItsBackward) {
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  at::Tensor y = checkpoint([](const at::Tensor& x) { return x.tanh(); }, x);
  for (const std::function<void()>& call :
       std::vector<std::function<void()>>{[] { configure({.checkpoint_in_cpu = true}); }, [] { checkpointing::reset(); },
                                          [] { checkpointing::partition_activations_in_checkpoint(true); }}) {
    const Error error = activation_error(call);
    EXPECT_EQ(error.code(), ErrorCode::kOrder);
    EXPECT_THAT(error.message(), HasSubstr("configured while 1 region waits for backward"));
    EXPECT_THAT(error.next_step(), HasSubstr("after backward"));
  }
  y.sum().backward();
  EXPECT_NO_THROW(configure({.checkpoint_in_cpu = true})) << "backward is over, though its result is held";
}

TEST_F(Configure, RefusesWhatAConfigMayNotSay) {
  const Error unknown = activation_error([] {
    configure({.deepspeed_config = Dict{{"gannet", Dict{{"activation_checkpointing", Dict{{"device", "tape"}}}}}},
               .checkpoint_in_cpu = true});
  });
  EXPECT_THAT(unknown.message(), HasSubstr("'tape'"));
  const Error path = activation_error([] {
    configure({.deepspeed_config = Dict{{"gannet", Dict{{"activation_checkpointing", Dict{{"device", "nvme"}}}}}},
               .checkpoint_in_cpu = true});
  });
  EXPECT_THAT(path.message(), HasSubstr("nvme_path"));
  EXPECT_FALSE(checkpointing::is_configured());
}

TEST_F(Configure, ProfileLogsALineForEachRegion) {
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  configure({.synchronize = true, .profile = true});
  CapturedLog log;
  checkpoint({.name = "block"}, [](const at::Tensor& x) { return x.tanh(); }, x).sum().backward();
  EXPECT_THAT(log.text(), ::testing::MatchesRegex("[^\n]*the region 'block': forward [0-9.]+ ms\n"
                                                  "[^\n]*the region 'block': recomputation [0-9.]+ ms\n"));
}

// The default's numbers, and then those of the streams, by an obvious reference: generators of their seeds.
TEST_F(RngTracker, AForkDrawsFromItsStreamAndLeavesTheDefaults) {
  checkpointing::model_parallel_manual_seed(7, /*tensor_rank=*/3);
  rng_tracker().add("other", 99);
  auto usual = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7});
  auto split = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7 + 2718 + 3});
  auto other = at::make_generator<at::CPUGeneratorImpl>(uint64_t{99});
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(at::equal(torch::randn({5}), torch::randn({5}, usual)));
    {
      const auto fork = rng_tracker().fork();
      EXPECT_TRUE(at::equal(torch::randn({5}), torch::randn({5}, split)));
      {
        const auto inner = rng_tracker().fork("other");
        EXPECT_TRUE(at::equal(torch::randn({5}), torch::randn({5}, other)));
      }
      EXPECT_TRUE(at::equal(torch::randn({5}), torch::randn({5}, split)));
    }
    EXPECT_TRUE(at::equal(torch::randn({5}), torch::randn({5}, usual)));
  }
}

TEST_F(RngTracker, StatesAreTakenAndPutBack) {
  rng_tracker().add("a", 1);
  const auto draw = [] {
    const auto fork = rng_tracker().fork("a");
    return torch::randn({5});
  };
  draw();
  const auto states = rng_tracker().get_states();
  const at::Tensor second = draw();
  rng_tracker().set_states(states);
  EXPECT_TRUE(at::equal(draw(), second));
  EXPECT_FALSE(at::equal(draw(), second));
  rng_tracker().reset();
  rng_tracker().set_states(states);
  EXPECT_TRUE(at::equal(draw(), second)) << "a stream that came by its states alone";
}

TEST_F(RngTracker, RefusesTwoStreamsOfANameOrSeedAndForksOfNone) {
  EXPECT_THAT(activation_error([] { const auto none = rng_tracker().fork("a"); }).message(),
              HasSubstr("there is no random stream 'a'; there is none"));
  rng_tracker().add("a", 1);
  EXPECT_THAT(activation_error([] { rng_tracker().add("a", 2); }).message(), HasSubstr("'a' was added already"));
  EXPECT_THAT(activation_error([] { rng_tracker().add("b", 1); }).message(), HasSubstr("'a' and 'b' have the same seed, 1"));
  EXPECT_THAT(activation_error([] { const auto none = rng_tracker().fork("c"); }).message(),
              HasSubstr("no random stream 'c'; there are 'a'"));
  const auto fork = rng_tracker().fork("a");
  const Error twice = activation_error([] { const auto none = rng_tracker().fork("a"); });
  EXPECT_EQ(twice.code(), ErrorCode::kOrder);
  EXPECT_THAT(twice.message(), HasSubstr("'a' is forked already"));
}

// Dropout of a stream within regions: gradients and all states afterwards are those of the plain run.
TEST_F(RngTracker, RegionsDrawTheSameNumbersAgain) {
  const auto run = [](bool has_regions) {
    checkpointing::model_parallel_manual_seed(5);
    at::Tensor x = torch::ones({64}, torch::requires_grad());
    const auto f = [](const at::Tensor& x) {
      const at::Tensor usual = torch::dropout(x * 2, 0.5, true);
      const auto fork = rng_tracker().fork();
      return torch::dropout(usual.tanh() * x, 0.5, true).exp();
    };
    at::Tensor y = x;
    for (int i = 0; i < 3; ++i) y = has_regions ? checkpoint(f, y) : f(y);
    y.sum().backward();
    const auto fork = rng_tracker().fork();
    return torch::cat({x.grad(), torch::randn({5})});
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

}  // namespace
}  // namespace gannet::test
