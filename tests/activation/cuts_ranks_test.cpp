// Cuts by the config and by the engine's switch: at every ZeRO stage, on one and two ranks, the run
// equals the one without them, bit for bit.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "activation/cut_models.h"
#include "activation/here.h"
#include "activation/recomputing.h"
#include "engine/impl.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::activation::region_counts;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

Dict with_cuts(Dict config, const Dict& section, const Dict& own = {}) {
  if (!section.entries().empty()) config["activation_checkpointing"] = section;
  if (!own.entries().empty()) config["gannet"] = Dict{{"activation_checkpointing", own}};
  return config;
}

std::vector<std::string> lines;  // of the log
void keep_log() {
  lines.clear();
  gannet::set_log_sink([](gannet::LogLevel level, const std::string& line) {
    lines.push_back((level == gannet::LogLevel::kWarning ? "warning: " : "") + line);
  });
}
int64_t lines_with(const std::string& part) {
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != line.npos; });
}

struct Trained {
  at::Tensor parameters, losses;
  std::vector<uint64_t> regions;  // of each step's forwards
};

template <class Engine>
Trained train_words(Engine& engine, int64_t steps = 3) {
  Trained trained;
  std::vector<at::Tensor> losses;
  torch::manual_seed(10 + engine.rank());
  for (int64_t step = 0; step < steps; ++step) {
    auto [ids, targets] = words_of(step * engine.world_size() + engine.rank(), 2, 10);
    const uint64_t before = region_counts().everywhere;
    const at::Tensor loss = engine.forward(ids, targets);
    trained.regions.push_back(region_counts().everywhere - before);
    engine.backward(loss);
    engine.step();
    losses.push_back(loss.detach());
  }
  trained.losses = torch::stack(losses);
  trained.parameters = parameters_of(engine);
  return trained;
}

Trained trained(const Dict& config, bool is_enabled = false) {
  auto engine = gannet::initialize(make_layered(), {.config = config}).engine;
  if (is_enabled) engine->gradient_checkpointing_enable();
  return train_words(*engine);
}

void expect_same(const Trained& found, const Trained& plain, const std::string& what) {
  expect(at::equal(found.losses, plain.losses), what + ": losses");
  expect(at::equal(found.parameters, plain.parameters), what + ": parameters");
}

// 7 layers: words, five blocks, head.
RANK_BODY(cuts_at_every_stage) {
  world();
  using Regions = std::vector<uint64_t>;
  for (const int64_t stage : {0, 1, 2, 3})
    for (const std::string dtype : {"fp32", "bf16"}) {
      const Dict config = stage3(stage, {}, dtype);
      const std::string what = "stage " + std::to_string(stage) + ", " + dtype + ", ";
      const Trained plain = trained(config);
      same(plain.regions == Regions{0, 0, 0}, true, what + "plain");
      const auto check = [&](const Trained& found, const Regions& regions, const std::string& how) {
        expect_same(found, plain, what + how);
        same(found.regions == regions, true, what + how + ": regions");
      };
      check(trained(config, true), {7, 7, 7}, "enabled");
      check(trained(with_cuts(config, Dict{{"number_checkpoints", 3}})), {3, 3, 3}, "number_checkpoints");
      check(trained(with_cuts(config, Dict{{"number_checkpoints", 3}}, Dict{{"interval", 2}})), {4, 4, 4}, "interval");
      check(trained(with_cuts(config, {}, Dict{{"memory_limit", "1GB"}})), {7, 0, 0}, "memory_limit that all fits in");
      check(trained(with_cuts(config, {}, Dict{{"memory_limit", 1}})), {7, 5, 5},
            "memory_limit that nothing fits in: words and head save nothing of their own");
    }
  const Dict offloaded =
      stage3(3, Dict{{"offload_optimizer", Dict{{"device", "cpu"}}}, {"offload_param", Dict{{"device", "cpu"}}}});
  expect_same(trained(with_cuts(offloaded, Dict{{"number_checkpoints", 2}})), trained(offloaded), "offloaded");
}

// Layers are chosen in the first step; every rank chooses the same, though one measures other times.
RANK_BODY(a_limit_in_between) {
  world();
  for (const int64_t stage : {0, 3}) {
    const Dict config = stage3(stage);
    const Trained plain = trained(config);
    keep_log();
    const Trained limited = trained(with_cuts(config, {}, Dict{{"memory_limit", "250KiB"}}));
    gannet::set_log_sink({});
    expect_same(limited, plain, "a limit");
    same(limited.regions[0], uint64_t{7}, "measured with each layer a region");
    expect(limited.regions[1] > 0 && limited.regions[1] < 7, "some: " + std::to_string(limited.regions[1]));
    same(limited.regions[2], limited.regions[1], "once");
    auto engine = gannet::initialize(make_net(), {.config = config_with({})}).engine;
    same(engine->mean(static_cast<double>(limited.regions[1])), static_cast<double>(limited.regions[1]), "on every rank");
    if (engine->rank() == 0)
      same(lines_with("memory_limit 250.0 KiB: " + std::to_string(limited.regions[1]) + " of 7 layers are recomputed"), 1,
           gannet::test::variable("RANK") + " says so: " + (lines.empty() ? "" : lines.back()));
    // Twice, the same bits.
    expect_same(trained(with_cuts(config, {}, Dict{{"memory_limit", "250KiB"}})), plain, "again");
  }
}

// The engine that owns a model's parameters says how it is cut, wherever its forward is called.
RANK_BODY(two_engines) {
  world();
  auto often = gannet::initialize(make_layered(), {.config = with_cuts(stage3(0), {}, Dict{{"interval", 1}})}).engine;
  auto seldom = gannet::initialize(make_layered(), {.config = with_cuts(stage3(0), Dict{{"number_checkpoints", 2}})}).engine;
  auto never = gannet::initialize(make_layered(), {.config = stage3(0)}).engine;
  auto nobodys = make_layered();
  const auto [ids, targets] = words_of(0, 2, 10);
  const auto regions = [&, ids = ids, targets = targets](auto& model) {
    const uint64_t before = region_counts().everywhere;
    model.forward(ids, targets);
    return region_counts().everywhere - before;
  };
  for (int round = 0; round < 2; ++round) {
    same(regions(*often), 7u, "each layer");
    same(regions(*seldom), 2u, "two");
    same(regions(*never), 0u, "none");
    same(regions(*nobodys), 0u, "no engine");
    same(regions(*often->module()), 7u, "the model of the first, called by itself");
    const at::NoGradGuard no_grad;
    same(regions(*often), 0u, "an evaluation");
  }
  never->gradient_checkpointing_enable();
  often->gradient_checkpointing_disable();
  same(regions(*never), 7u, "enabled");
  same(regions(*often), 0u, "disabled");
  same(often->is_gradient_checkpointing(), false, "off");
  often->gradient_checkpointing_enable();
  same(regions(*often), 7u, "as the config says again");
  // In a region of the program's the layers are called as they are.
  const uint64_t before = region_counts().everywhere;
  gannet::checkpointing::checkpoint([&](const at::Tensor& ids) { return run_layers(often->module()->layers(), ids); }, ids);
  same(region_counts().everywhere - before, 1u, "one region");
  seldom.reset();
  same(regions(*never->module()), 7u, "while another engine ends");
  auto module = never->module();
  never.reset();
  same(regions(*module), 0u, "its engine is gone");
}

struct PlainImpl : torch::nn::Module {  // has no layers
  PlainImpl() { linear = register_module("linear", torch::nn::Linear(8, 4)); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto run = [this](const at::Tensor& x) { return linear(x).tanh(); };
    return torch::mse_loss(has_region ? gannet::checkpointing::checkpoint(run, x) : run(x), y);
  }
  torch::nn::Linear linear{nullptr};
  bool has_region = false;
};

RANK_BODY(a_config_without_effect) {
  world();
  const auto warnings = [](const Dict& config, bool has_region, bool is_enabled = false) {
    auto model = std::make_shared<PlainImpl>();
    model->has_region = has_region;
    auto engine = gannet::initialize(model, {.config = config}).engine;
    if (is_enabled) engine->gradient_checkpointing_enable();
    keep_log();
    train(*engine, 3);
    gannet::set_log_sink({});
    return std::pair(lines_with("warning: "), lines_with("step 1 recomputed nothing"));
  };
  const bool is_first = variable("RANK") == "0" || variable("RANK").empty();
  const auto once = std::pair<int64_t, int64_t>(is_first, is_first), none = std::pair<int64_t, int64_t>(0, 0);
  expect(warnings(stage3(0), false) == none, "nothing asked");
  expect(warnings(with_cuts(stage3(0), Dict{{"number_checkpoints", 2}}), false) == once, "number_checkpoints");
  expect(warnings(with_cuts(stage3(0), {}, Dict{{"memory_limit", "1MB"}}), false) == once, "memory_limit");
  expect(warnings(stage3(0), false, true) == once, "enabled");
  expect(warnings(with_cuts(stage3(0), Dict{{"number_checkpoints", 2}}), true) == none, "the program has regions of its own");
}

RANK_BODY(one_rank_alone_enabled) {
  world();
  auto engine = gannet::initialize(make_layered(), {.config = stage3(3)}).engine;
  if (engine->rank() == 1) engine->gradient_checkpointing_enable();
  const std::string message = message_of([&] { train_words(*engine, 1); });
  contains(message, "whether gradient checkpointing is on");
}

// A Sequential is cut as it is.
RANK_BODY(a_sequential) {
  world();
  const auto run = [](const Dict& config) {
    torch::manual_seed(3);
    torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Dropout(0.2), torch::nn::Linear(32, 32),
                              torch::nn::Tanh(), torch::nn::Linear(32, 4));
    auto engine = gannet::initialize(net.ptr(), {.config = config}).engine;
    torch::manual_seed(5);
    uint64_t regions = 0;
    for (int64_t step = 0; step < 3; ++step) {
      auto [x, y] = make_batch(step * engine->world_size() + engine->rank(), 4);
      const uint64_t before = region_counts().everywhere;
      const at::Tensor found = engine->forward(x);
      regions += region_counts().everywhere - before;
      engine->backward(torch::mse_loss(found, y));
      engine->step();
    }
    return std::pair(parameters_of(*engine), regions);
  };
  for (const int64_t stage : {0, 3}) {
    const auto plain = run(stage3(stage)), cut = run(with_cuts(stage3(stage), {}, Dict{{"interval", 4}}));
    expect(at::equal(plain.first, cut.first), "bits");
    same(plain.second, 0u, "plain");
    same(cut.second, 6u, "two regions in each of three steps");
  }
}

TEST(Cuts, TrainAsWithoutThemOnOneRank) { ranks::expect_all_succeed(run_ranks("cuts_at_every_stage", 1)); }
TEST(Cuts, TrainAsWithoutThemOnTwoRanks) { ranks::expect_all_succeed(run_ranks("cuts_at_every_stage", 2)); }
TEST(Cuts, ByAMemoryLimitAreChosenAlikeOnAllRanks) {
  for (const int count : {1, 2}) ranks::expect_all_succeed(run_ranks("a_limit_in_between", count));
}
TEST(Cuts, AreThoseOfTheEngineThatHasTheParameters) { ranks::expect_all_succeed(run_ranks("two_engines", 1)); }
TEST(Cuts, WithoutEffectAreWarnedOfOnce) {
  for (const int count : {1, 2}) ranks::expect_all_succeed(run_ranks("a_config_without_effect", count));
}
TEST(Cuts, OnOneRankAloneAreAnError) { ranks::expect_all_succeed(run_ranks("one_rank_alone_enabled", 2)); }
TEST(Cuts, OfASequentialNeedNoCode) {
  for (const int count : {1, 2}) ranks::expect_all_succeed(run_ranks("a_sequential", count));
}

}  // namespace
