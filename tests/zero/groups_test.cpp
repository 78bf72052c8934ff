// Parameter groups by patterns on names, at every stage: against plain LibTorch with the same groups, resumed, and with
// parameters that join.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/impl.h"
#include "plugin/support.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::List;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

const Dict kBiases{{"match", "*.bias"}, {"weight_decay", 0}};

Dict config_of(int64_t stage, const List& groups, const std::string& dtype = "fp32") {
  Dict zero{{"stage", stage}, {"stage3_param_persistence_threshold", 20}};
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config["optimizer"] =
      Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}, {"weight_decay", 0.3}, {"eps", 1e-6}}}, {"param_groups", groups}};
  if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
  return config;
}

// first.weight is the rest, first.bias and second.bias are biases, second.weight has a rate of its own.
const List kGroups{kBiases, Dict{{"match", "second.*"}, {"lr", 3e-3}, {"name", "head"}}};

at::Tensor reference(int64_t steps, uint32_t world) {
  auto net = make_net();
  const auto options = [](double lr, double decay) {
    auto made = std::make_unique<torch::optim::AdamWOptions>(lr);
    made->weight_decay(decay).eps(1e-6);
    return made;
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{net->first->weight}, options(1e-2, 0.3));
  groups.emplace_back(std::vector<at::Tensor>{net->first->bias, net->second->bias}, options(1e-2, 0));
  groups.emplace_back(std::vector<at::Tensor>{net->second->weight}, options(3e-3, 0.3));
  torch::optim::AdamW adamw(groups, torch::optim::AdamWOptions(1e-2));
  for (int64_t step = 0; step < steps; ++step) {
    adamw.zero_grad();
    for (uint32_t rank = 0; rank < world; ++rank) {
      auto [x, y] = make_batch(step * world + rank, 4);
      (net->forward(x, y) / static_cast<double>(world)).backward();
    }
    adamw.step();
  }
  return flat_parameters(*net);
}

// By the model's names, for any order of groups.
at::Tensor in_model_order(gannet::EngineBase& engine) {
  std::map<std::string, at::Tensor> masters;
  for (const auto& [name, master] : engine.fp32_parameters()) masters[name] = master.to(torch::kDouble).flatten().clone();
  return torch::cat(
      {masters.at("first.weight"), masters.at("first.bias"), masters.at("second.weight"), masters.at("second.bias")});
}

RANK_BODY(groups_by_name) {
  auto world = gannet::test::world();
  const at::Tensor expected = reference(8, world->size());
  for (const int64_t stage : {0, 1, 2, 3})
    for (const bool in_code : {false, true}) {
      auto net = make_net();
      auto made = in_code
                      ? gannet::initialize(
                            net, {.config = config_of(stage, {}),
                                  .model_parameters = {{.overrides = Dict{{"weight_decay", 0}}, .match = {"*.bias"}},
                                                       {.overrides = Dict{{"lr", 3e-3}}, .name = "head", .match = {"second.*"}}}})
                      : gannet::initialize(net, {.config = config_of(stage, kGroups)});
      same(made.optimizer->group_count(), size_t{3}, "groups");
      same(made.optimizer->group(0).name(), std::string("default"), "the rest");
      same(made.optimizer->group(1).name(), std::string("*.bias"), "a pattern is a name");
      same(made.optimizer->group(2).name(), std::string("head"), "a given name");
      same(made.optimizer->group(1).get("weight_decay"), 0.0, "an override");
      same(made.optimizer->group(2).get("weight_decay"), 0.3, "what is not overridden is the config's");
      train(*made.engine, 8);
      const double off = difference(in_model_order(*made.engine), expected);
      expect(off < 2e-6, "stage " + std::to_string(stage) + " is off by " + std::to_string(off));
    }
}

RANK_BODY(groups_resume) {
  auto world = gannet::test::world();
  const at::Tensor expected = reference(8, world->size());
  for (const int64_t from : {0, 3})
    for (const int64_t to : {1, 3}) {
      const std::string tag = "of" + std::to_string(from) + std::to_string(to);
      auto before = gannet::initialize(make_net(), {.config = config_of(from, kGroups)}).engine;
      train(*before, 5);
      before->save_checkpoint(variable("FOLDER"), {.tag = tag});
      before.reset();
      auto after = gannet::initialize(make_net(9), {.config = config_of(to, kGroups)}).engine;
      const auto receipt = after->load_checkpoint(variable("FOLDER"), {.tag = tag});
      expect(receipt.to_string().find("group") == std::string::npos, "nothing to tell: " + receipt.to_string());
      train(*after, 3, 5);
      expect(difference(in_model_order(*after), expected) < 2e-6, "resumed from stage " + tag);
    }
}

// A parameter that was frozen joins the group that it was given to; a new layer joins the one that
// its name matches.
RANK_BODY(groups_join) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 2, 3}) {
    auto net = make_net();
    net->first->bias.requires_grad_(false);
    auto made = gannet::initialize(net, {.config = config_of(stage, kGroups)});
    same(made.optimizer->group(1).parameters().size(), size_t{1}, "second.bias");
    train(*made.engine, 2);
    net->first->bias.requires_grad_(true);
    torch::manual_seed(5);
    net->register_module("third", torch::nn::Linear(2, 2));
    train(*made.engine, 1, 2);
    std::vector<std::vector<std::string>> names;
    for (size_t g = 0; g < 3; ++g) {
      names.emplace_back();
      for (const auto* parameter : made.engine->impl().store.parameters_of(g)) names.back().push_back(parameter->name);
    }
    expect(names[0] == std::vector<std::string>{"first.weight", "third.weight"}, "the rest");
    expect(names[1] == std::vector<std::string>{"second.bias", "first.bias", "third.bias"}, "the biases");
    expect(names[2] == std::vector<std::string>{"second.weight"}, "the head");
  }
}

// A list of bounds has one for each group, the rest first.
RANK_BODY(groups_schedule) {
  Dict config = config_of(0, kGroups);
  const auto schedule = [](const List& bounds) {
    return Dict{
        {"type", "WarmupLR"},
        {"params", Dict{{"warmup_min_lr", 0}, {"warmup_max_lr", bounds}, {"warmup_num_steps", 2}, {"warmup_type", "linear"}}}};
  };
  config["scheduler"] = schedule({0.1, 0.2, 0.3});
  auto engine = gannet::initialize(make_net(), {.config = config}).engine;
  train(*engine, 4);
  expect(engine->get_lr() == std::vector<double>{0.1, 0.2, 0.3}, "default, *.bias, head");
  config["scheduler"] = schedule({0.1, 0.2});
  contains(message_of([&] { gannet::initialize(make_net(), {.config = config}); }),
           "expected 3 values for 'warmup_max_lr', got 2");
}

// Patterns that differ between ranks are found where the config is compared.
RANK_BODY(groups_differ) {
  auto world = gannet::test::world();
  const List mine{Dict{{"match", world->rank() == 0 ? "*.bias" : "first.bias"}, {"weight_decay", 0}}};
  const std::string message = message_of([&] { gannet::initialize(make_net(), {.config = config_of(1, mine)}); });
  contains(message, "optimizer.param_groups.0");
}

class Groups : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const gannet::test::TemporaryFolder folder_;
};

TEST_F(Groups, TrainAsPlainLibTorchsDoAtEveryStageOnOneRank) { run("groups_by_name", 1); }
TEST_F(Groups, TrainAsPlainLibTorchsDoAtEveryStageOnTwoRanks) { run("groups_by_name", 2); }
TEST_F(Groups, AreResumedAtAnyStage) { run("groups_resume", 2); }
TEST_F(Groups, ParametersThatJoinBelongWhereTheirNameSays) { run("groups_join", 2); }
TEST_F(Groups, ScheduleBoundsAreGivenInTheOrderOfTheGroups) { run("groups_schedule", 1); }
TEST_F(Groups, RanksWithOtherPatternsAreRefused) { run("groups_differ", 2); }

}  // namespace
