// Adam counts the updates of each parameter, as torch.optim does; the program's own optimizer gets its tensors back.
#include <gannet/gannet.h>
#include <gannet/zero.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "comm/ranks.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;

Dict adam_config(int64_t stage) {
  Dict config = config_with({{"gradient_clipping", 0.0}, {"zero_optimization", Dict{{"stage", stage}}}});
  config["optimizer"] =
      Dict{{"type", "Adam"}, {"params", Dict{{"lr", 0.01}, {"eps", 1e-6}, {"weight_decay", 0.0}, {"adam_w_mode", false}}}};
  return config;
}

struct Plain {
  std::shared_ptr<NetImpl> net = make_net();
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(0.01).eps(1e-6)};
  void step(int64_t index, int64_t ranks) {
    optimizer.zero_grad();
    at::Tensor loss = torch::zeros({});
    for (int64_t rank = 0; rank < ranks; ++rank) {
      auto [x, y] = make_batch(index * ranks + rank, 4);
      loss = loss + net->forward(x, y) / static_cast<double>(ranks);
    }
    loss.backward();
    optimizer.step();
  }
};

// Frozen, thawed, frozen for a while, thawed again; with a save and a load of another engine in the middle.
RANK_BODY(late_parameters) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 1, 2, 3}) {
    Plain plain;
    auto net = make_net();
    plain.net->first->weight.requires_grad_(false);
    net->first->weight.requires_grad_(false);
    auto engine = gannet::initialize(net, {.config = adam_config(stage)}).engine;
    int64_t index = 0;
    const auto train = [&](int64_t steps) {
      for (int64_t i = 0; i < steps; ++i, ++index) {
        plain.step(index, world->size());
        auto [x, y] = make_batch(index * world->size() + world->rank(), 4);
        engine->backward(engine->forward(x, y));
        engine->step();
      }
    };
    const auto require = [&](const char* what, bool on) {
      for (auto& module : {plain.net, net})
        (std::string(what) == "first" ? module->first->weight : module->second->bias).requires_grad_(on);
    };
    train(20);
    require("first", true);
    train(3);
    require("second", false);
    train(5);
    require("second", true);
    train(2);
    const std::string folder = variable("FOLDER") + "/" + std::to_string(stage);
    engine->save_checkpoint(folder);
    auto again = make_net(9);
    auto resumed = gannet::initialize(again, {.config = adam_config(stage)}).engine;
    resumed->load_checkpoint(folder, {.lock_folder = false});
    engine = resumed;
    net = again;
    train(3);
    std::vector<at::Tensor> expected;
    for (const auto& [name, value] : engine->fp32_parameters()) {
      const at::Tensor other = plain.net->named_parameters()[name].detach();
      const double apart = (value - other).norm().item<double>() / other.norm().item<double>();
      ranks::expect(apart < 2e-5,
                    "stage " + std::to_string(stage) + ": '" + name + "' is " + std::to_string(apart * 1e6) + "e-6 apart");
    }
  }
}

TEST(Adam, CountsTheUpdatesOfEachParameter) {
  for (const int ranks : {1, 2}) {
    const auto folder = std::filesystem::temp_directory_path() / ("gannet-late-" + std::to_string(::getpid()));
    ranks::expect_all_succeed(ranks::run_ranks("late_parameters", ranks, {.environment = {{"FOLDER", folder.string()}}}));
    std::filesystem::remove_all(folder);
  }
}

RANK_BODY(own_optimizer_after_its_engine) {
  auto net = make_net();
  Dict config = config_with({{"bf16", Dict{{"enabled", true}}}, {"gradient_clipping", 0.0}});
  config.erase("optimizer");
  auto own = std::make_shared<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(0.01));
  for (int round = 0; round < 2; ++round) {
    auto engine = gannet::initialize(net, {.config = config, .optimizer = own}).engine;
    auto [x, y] = make_batch(round, 4);
    engine->backward(engine->forward(x, y));
    ranks::expect(engine->step().applied, "a step");
  }
  const at::Tensor before = flat_parameters(*net);
  auto [x, y] = make_batch(7, 4);
  net->forward(x, y).backward();
  own->step();
  ranks::expect(!torch::equal(flat_parameters(*net), before), "the optimizer moves the module again");
}
TEST(OwnOptimizer, HasTheModulesTensorsAgainAfterItsEngine) {
  ranks::expect_all_succeed(ranks::run_ranks("own_optimizer_after_its_engine", 1));
}

RANK_BODY(a_guard_over_a_step) {
  auto world = gannet::test::world();
  Dict config = adam_config(3);
  config["zero_optimization"] = Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
  auto net = make_net();
  auto engine = gannet::initialize(net, {.config = config}).engine;
  {
    gannet::zero::GatheredParameters guard(*engine, net->parameters());
    auto [x, y] = make_batch(world->rank(), 4);
    engine->backward(engine->forward(x, y));
    contains(message_of([&] { engine->step(); }), "a zero::GatheredParameters guard holds 'first.weight'");
  }
  auto guard = std::make_unique<gannet::zero::GatheredParameters>(*engine, net->parameters());
  engine.reset();
  contains(message_of([&] { guard->publish(); }), "ended after its engine");
}
TEST(Guards, AreOverBeforeAStepAndBeforeTheirEngineEnds) {
  ranks::expect_all_succeed(ranks::run_ranks("a_guard_over_a_step", 2));
}

RANK_BODY(a_second_engine_that_fails) {
  auto world = gannet::test::world();
  Dict config = adam_config(3);
  config["zero_optimization"] = Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}};
  config["bf16"] = Dict{{"enabled", true}};
  auto net = make_net();
  auto engine = gannet::initialize(net, {.config = config}).engine;
  const auto step = [&](int64_t index) {
    auto [x, y] = make_batch(index * world->size() + world->rank(), 4);
    engine->backward(engine->forward(x, y));
    return engine->step().applied;
  };
  step(0);
  Dict wrong = config;
  wrong["scheduler"] = Dict{{"type", "WarmupLR"}, {"params", Dict{{"warmup_num_stepz", 3}}}};
  contains(message_of([&] { gannet::initialize(net, {.config = wrong}); }), "warmup_num_stepz");
  ranks::expect(step(1), "the first engine trains on");
}
TEST(Engines, ASecondOneThatFailsLeavesTheFirst) { ranks::expect_all_succeed(ranks::run_ranks("a_second_engine_that_fails", 2)); }

}  // namespace
