// Adam counts the updates of each parameter, as torch.optim does; the program's own optimizer gets its tensors back.
#include <gannet/gannet.h>
#include <gannet/zero.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

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

struct SpectrumImpl : torch::nn::Module {
  SpectrumImpl() {
    torch::manual_seed(1);
    spectrum = register_parameter("spectrum", torch::randn({8}, at::kComplexFloat));
    scale = register_parameter("scale", torch::ones({8}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return (at::real(torch::fft::ifft(torch::fft::fft(x) * spectrum)) * scale - x).square().mean();
  }
  at::Tensor spectrum, scale;
};
at::Tensor noise(int64_t index) {
  torch::manual_seed(100 + index);
  return torch::randn({4, 8});
}

RANK_BODY(own_optimizer_of_complex_parameters) {
  auto world = gannet::test::world();
  Dict config = config_with({{"gradient_clipping", 0.0}});
  config.erase("optimizer");
  auto plain = std::make_shared<SpectrumImpl>(), ours = std::make_shared<SpectrumImpl>();
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD of_plain(plain->parameters(), options);
  auto engine =
      gannet::initialize(ours, {.config = config, .optimizer = std::make_shared<torch::optim::SGD>(ours->parameters(), options)})
          .engine;
  for (int64_t index = 0; index < 4; ++index) {
    of_plain.zero_grad();
    for (uint32_t rank = 0; rank < world->size(); ++rank)
      (plain->forward(noise(index * 2 + rank)) / static_cast<double>(world->size())).backward();
    of_plain.step();
    engine->backward(engine->forward(noise(index * 2 + world->rank())));
    ranks::expect(engine->step().applied, "a step");
  }
  for (const auto& entry : plain->named_parameters()) {
    const at::Tensor& other = entry.value();
    const double apart = ((ours->named_parameters()[entry.key()] - other).norm() / other.norm()).abs().item<double>();
    ranks::expect(apart < 1e-5, "'" + entry.key() + "' is " + std::to_string(apart * 1e6) + "e-6 apart");
  }
}
TEST(OwnOptimizer, StepsComplexParameters) {
  for (const int ranks : {1, 2}) ranks::expect_all_succeed(ranks::run_ranks("own_optimizer_of_complex_parameters", ranks));
}

// Calls its closure without a look whether there is one.
struct Reevaluates : torch::optim::SGD {
  using SGD::SGD;
  at::Tensor step(LossClosure closure) override { return closure(); }
};

RANK_BODY(own_optimizer_with_a_closure) {
  Dict config = config_with({{"gradient_clipping", 0.0}});
  config.erase("optimizer");
  auto net = make_net();
  auto lbfgs = std::make_shared<torch::optim::LBFGS>(net->parameters());
  contains(message_of([&] { gannet::initialize(net, {.config = config, .optimizer = lbfgs}); }),
           "torch::optim::LBFGS evaluates the loss again inside step()");
  auto own = std::make_shared<Reevaluates>(net->parameters(), torch::optim::SGDOptions(0.1));
  auto engine = gannet::initialize(net, {.config = config, .optimizer = own}).engine;
  auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  try {
    engine->step();
  } catch (const gannet::Error& error) {
    contains(error.what(), "the program's own optimizer evaluates the loss again inside step()");
    contains(error.what(), "AdamW");
    return;
  }
  ranks::expect(false, "an error");
}
TEST(OwnOptimizer, ThatNeedsAClosureIsRefused) { ranks::expect_all_succeed(ranks::run_ranks("own_optimizer_with_a_closure", 1)); }

RANK_BODY(numbers_that_are_none) {
  auto engine = gannet::initialize(make_net(), {.config = adam_config(0)}).engine;
  auto group = engine->optimizer_handle()->group(0);
  for (const double wrong : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
    contains(message_of([&] { group.set("lr", wrong); }), "'lr' was set to ");
    contains(message_of([&] { group.set("weight_decay", wrong); }), "'weight_decay' was set to ");
    contains(message_of([&] { engine->set_lr(wrong); }), "a learning rate is a finite number");
  }
  ranks::same(group.get("lr"), 0.01, "the learning rate");
  ranks::same(group.get("weight_decay"), 0.0, "the decay");

  for (const auto& [wrong, text] : {std::pair(std::nan(""), "nan"), std::pair(-0.25, "-0.25")}) {
    const auto rate = [wrong = wrong](int64_t position) { return position == 2 ? wrong : 0.01; };
    auto net = make_net();
    auto scheduled = gannet::initialize(net, {.config = adam_config(0), .lr_scheduler = {rate}}).engine;
    const auto step = [&, e = scheduled.get()] {
      auto [x, y] = make_batch(0, 4);
      e->backward(e->forward(x, y));
      e->step();
    };
    step();
    const at::Tensor before = flat_parameters(*net);
    contains(message_of(step), std::string("the schedule's learning rate at position 2 is ") + text);
    ranks::expect(torch::equal(flat_parameters(*net), before), "nothing moved");
  }
  gannet::Dict falling = adam_config(0);
  falling["scheduler"] = gannet::Dict{
      {"type", "LRRangeTest"}, {"params", gannet::Dict{{"lr_range_test_step_rate", -3.0}, {"lr_range_test_step_size", 1}}}};
  auto below = gannet::initialize(make_net(), {.config = falling}).engine;
  contains(message_of([&] {
             for (int i = 0; i < 3; ++i) {
               auto [x, y] = make_batch(0, 4);
               below->backward(below->forward(x, y));
               below->step();
             }
           }),
           "the LRRangeTest scheduler's learning rate at position");
  gannet::Dict negative = adam_config(0);
  negative["scheduler"] = gannet::Dict{{"type", "WarmupLR"}, {"params", gannet::Dict{{"warmup_max_lr", -1.0}}}};
  contains(message_of([&] { gannet::initialize(make_net(), {.config = negative}); }),
           "'warmup_max_lr' of scheduler plugin WarmupLR: expected a list of numbers >= 0");
}
TEST(Hyperparameters, AreFiniteNumbers) { ranks::expect_all_succeed(ranks::run_ranks("numbers_that_are_none", 1)); }

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
