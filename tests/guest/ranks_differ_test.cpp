// Ranks that were told different numbers: each ends in an error that names the rank and the value, within one step.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <thread>

#include "comm/ranks.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<gannet::Engine<NetImpl>> make_engine(const Dict& more = {}, int64_t stage = 0) {
  Dict config = config_with({{"zero_optimization", Dict{{"stage", stage}}}, {"gradient_clipping", 0.0}});
  for (const auto& [key, value] : more.entries()) config[key] = value;
  return gannet::initialize(make_net(), {.config = config}).engine;
}

void step(gannet::Engine<NetImpl>& engine, int64_t index) {
  auto [x, y] = make_batch(index * 2 + engine.rank(), 4);
  engine.backward(engine.forward(x, y));
  engine.step();
}

// Actions of only rank 1.
std::map<std::string, std::function<void(gannet::Engine<NetImpl>&)>> deeds() {
  using Net = gannet::Engine<NetImpl>;
  return {
      {"rate", [](Net& e) { e.set_lr(5e-3); }},
      {"decay", [](Net& e) { e.optimizer_handle()->group(0).set("weight_decay", 0.5); }},
      {"batch", [](Net& e) { e.set_train_batch_size(e.train_batch_size() / 2); }},
      {"boundary", [](Net& e) { e.set_gradient_accumulation_boundary(true); }},
      {"write",
       [](Net& e) {
         torch::NoGradGuard no_grad;
         e.module()->first->bias.fill_(1);
       }},
      {"load", [](Net& e) { e.module()->first->bias.set_data(at::ones({16})); }},
      {"freeze", [](Net& e) { e.module()->first->bias.requires_grad_(false); }},
      {"nan",
       [](Net& e) {
         auto [x, y] = make_batch(9, 4);
         message_of([&, x = x, y = y] { e.backward(e.forward(x, y) * std::nan("")); });
       }},
      {"bit",
       [](Net& e) {
         auto* bits = static_cast<uint32_t*>(e.module()->second->weight.mutable_data_ptr());
         bits[5] ^= 1 << 20;
       }},
  };
}

RANK_BODY(one_rank_differs) {
  auto world = gannet::test::world();
  const std::string deed = variable("DEED");
  auto engine = make_engine({{"gradient_accumulation_steps", deed == "batch" || deed == "boundary" ? 4 : 1},
                             // The hashes of parameters would also find the write, and on a busy
                             // machine first.
                             {"gannet", Dict{{"fingerprint_every", deed == "write" || deed == "load" ? 100 : 1}}}},
                            std::stoll(variable("STAGE")));
  const auto train = [&](int64_t first) {
    for (int64_t micro = 0; micro < engine->gradient_accumulation_steps(); ++micro) step(*engine, first * 4 + micro);
  };
  train(0);
  if (world->rank() == 1) deeds().at(deed)(*engine);
  std::string told = message_of([&] {
    train(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a verdict is on its way
    auto [x, y] = make_batch(70, 4);
    engine->backward(engine->forward(x, y));
  });
  std::cout << "told: " << told << std::endl;
  ranks::expect(!told.empty(), "rank " + std::to_string(world->rank()) + " was told within one step");
}

void expect_told(const std::string& deed, const std::vector<std::string>& stages, const testing::Matcher<std::string>& matcher) {
  for (const auto& stage : stages) {
    const auto outcomes = ranks::run_ranks("one_rank_differs", 2, {.environment = {{"DEED", deed}, {"STAGE", stage}}});
    ranks::expect_all_succeed(outcomes);
    for (const auto& outcome : outcomes) EXPECT_THAT(outcome.output, matcher) << deed << " at stage " << stage;
  }
}

TEST(RanksDiffer, InALearningRate) {
  expect_told("rate", {"0", "2"},
              AllOf(HasSubstr("lr of group 0 is "), HasSubstr("0.005 on rank 1"), HasSubstr("0.01 on rank 0")));
}
TEST(RanksDiffer, InAHyperparameter) {
  expect_told("decay", {"0"}, AllOf(HasSubstr("weight_decay of group 0"), HasSubstr("0.5 on rank 1")));
}
TEST(RanksDiffer, InTheAccumulation) {
  expect_told("batch", {"0"}, AllOf(HasSubstr("gradient_accumulation_steps is"), HasSubstr("rank 1")));
}
TEST(RanksDiffer, InTheBoundary) {
  // Without a call of the other rank to meet, below stage 2, it is the next boundary that differs.
  expect_told("boundary", {"0"},
              testing::AnyOf(HasSubstr("the micro-batch of the step is 1 on rank 1 and 4 on rank 0"),
                             HasSubstr("the micro-batch of the step is 4 on rank 0 and 1 on rank 1")));
  expect_told("boundary", {"3"}, HasSubstr("is_gradient_accumulation_boundary is "));
}
TEST(RanksDiffer, InWhatTheProgramWrote) {
  expect_told("write", {"0", "1", "3"}, HasSubstr("what the program wrote into parameters"));
  expect_told("load", {"0"}, HasSubstr("what the program wrote into parameters"));
}
TEST(RanksDiffer, InWhatIsFrozen) { expect_told("freeze", {"0"}, HasSubstr("which parameters require a gradient")); }

// Within a step of 2 micro-batches: rank 1 freezes a bias before the second one, rank 0 never, or
// before the first one. In the second case it is frozen on both ranks when the step is taken, and
// has a gradient only on rank 1.
RANK_BODY(frozen_within_a_step) {
  auto world = gannet::test::world();
  auto engine = make_engine({{"gradient_accumulation_steps", 2}});
  for (int64_t micro = 0; micro < 2; ++micro) step(*engine, micro);
  const bool is_early = variable("DEED") == "earlier" && world->rank() == 0;
  const at::Tensor bias = engine->module()->first->bias;
  const std::string told = message_of([&] {
    if (is_early) bias.requires_grad_(false);
    step(*engine, 2);
    if (world->rank() == 1) bias.requires_grad_(false);
    step(*engine, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a verdict is on its way
    for (int64_t micro = 4; micro < 6; ++micro) step(*engine, micro);
  });
  std::cout << "told: " << told << std::endl;
  contains(told, "which parameters require a gradient");
  contains(told, "rank 1");
}
TEST(RanksDiffer, InWhatIsFrozenWithinAStep) {
  for (const std::string deed : {"never", "earlier"})
    ranks::expect_all_succeed(ranks::run_ranks("frozen_within_a_step", 2, {.environment = {{"DEED", deed}}}));
}
// Rank 1 clears `.grad` within a step, where no other rank meets it before the step's end.
RANK_BODY(cleared_on_one_rank) {
  auto world = gannet::test::world();
  auto engine = make_engine({}, std::stoll(variable("STAGE")));
  step(*engine, 0);
  auto [x, y] = make_batch(world->rank(), 4);
  engine->backward(engine->forward(x, y));
  if (world->rank() == 1) engine->module()->second->zero_grad();
  contains(message_of([&] {
             engine->step();
             std::this_thread::sleep_for(std::chrono::milliseconds(500));
             step(*engine, 2);
           }),
           "which gradients the program cleared");
}
TEST(RanksDiffer, InWhichGradientsTheyClear) {
  for (const char* stage : {"0", "3"})
    ranks::expect_all_succeed(ranks::run_ranks("cleared_on_one_rank", 2, {.environment = {{"STAGE", stage}}}));
}

TEST(RanksDiffer, InTheErrorsThatTheyCaught) { expect_told("nan", {"0"}, HasSubstr("the number of errors that were caught is")); }
TEST(RanksDiffer, InOneBit) {
  expect_told("bit", {"0"}, AllOf(HasSubstr("different values of 'second.weight'"), HasSubstr("rank 1")));
}

// Every rank has the parameters whole; the masters are sharded.
RANK_BODY(a_bit_before_a_save) {
  auto world = gannet::test::world();
  auto engine = make_engine({{"bf16", Dict{{"enabled", true}}}}, 2);
  step(*engine, 0);
  if (world->rank() == 1) static_cast<uint16_t*>(engine->module()->second->weight.mutable_data_ptr())[5] ^= 1;
  contains(message_of([&] { engine->save_checkpoint("never-written"); }), "different values of 'second.weight'");
  contains(message_of([&] { step(*engine, 1); }), "parameter values are undefined");
}
TEST(RanksDiffer, InOneBitBeforeASave) { ranks::expect_all_succeed(ranks::run_ranks("a_bit_before_a_save", 2)); }

RANK_BODY(stale_config) {
  auto world = gannet::test::world();
  Dict config = config_with({});
  if (world->rank() == 1) config["optimizer"] = adamw(2e-2);
  const std::string told = message_of([&] { gannet::initialize(make_net(), {.config = config}); });
  std::cout << told << std::endl;
  contains(told, "the ranks differ in the config");
  contains(told, "lr");
  contains(told, "0.02");
}
TEST(RanksDiffer, InTheirConfigs) { ranks::expect_all_succeed(ranks::run_ranks("stale_config", 2)); }

RANK_BODY(metrics_differ) {
  auto world = gannet::test::world();
  Dict config = config_with({{"scheduler", Dict{{"type", "ReduceLROnPlateau"}, {"params", Dict{{"patience", 5}}}}}});
  auto [engine, optimizer, loader, scheduler] = gannet::initialize(make_net(), {.config = config});
  step(*engine, 0);
  scheduler->step(0.5);
  step(*engine, 1);
  scheduler->step(world->rank() == 0 ? 0.25 : 0.125);  // better on both: rates are equal, and what comes next is not
  const std::string told = message_of([&] {
    step(*engine, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    step(*engine, 3);
  });
  contains(told, "the metric of the last scheduler->step() is ");
  contains(told, "0.25 on rank 0");
  contains(told, "0.125 on rank 1");
}
TEST(RanksDiffer, InTheMetricOfTheirSchedule) { ranks::expect_all_succeed(ranks::run_ranks("metrics_differ", 2)); }

RANK_BODY(engines_in_another_order) {
  auto world = gannet::test::world();
  auto a = make_engine(), b = make_engine();
  const std::string told = message_of([&] {
    step(world->rank() == 0 ? *a : *b, 0);
    step(world->rank() == 0 ? *b : *a, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    step(*a, 1);
  });
  contains(told, "the ranks call different engines");
}
TEST(RanksDiffer, InTheOrderOfTheirEngines) { ranks::expect_all_succeed(ranks::run_ranks("engines_in_another_order", 2)); }

RANK_BODY(thawed_on_one_rank) {
  auto world = gannet::test::world();
  auto net = make_net();
  net->first->bias.requires_grad_(false);
  auto engine = gannet::initialize(net, {.config = config_with({})}).engine;
  step(*engine, 0);
  if (world->rank() == 1) net->first->bias.requires_grad_(true);
  contains(message_of([&] {
             step(*engine, 1);
             std::this_thread::sleep_for(std::chrono::milliseconds(500));
             step(*engine, 2);
           }),
           "the joining of new parameters() of step 2 with tag 'first.bias'");
}
TEST(RanksDiffer, InWhatTheyThaw) { ranks::expect_all_succeed(ranks::run_ranks("thawed_on_one_rank", 2)); }

}  // namespace
