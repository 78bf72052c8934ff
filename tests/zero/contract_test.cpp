// Guarantees of the contract to optimizers, at every stage and on every tier: begin_step and
// end_step once a step, non-element states the same on every rank, sums of tensors, groups and the
// model, collectives, alignment of ranges, roles.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/impl.h"
#include "plugin/support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

Dict contract_config(const std::string& optimizer, int64_t stage = 0, const std::string& states = "none", int64_t align = 0) {
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  if (states != "none") {
    Dict tier{{"device", states}};
    if (states == "nvme") tier["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = tier;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  Dict params;
  if (optimizer == "Contract") params = Dict{{"eta", 0.05}, {"align", align}};
  config["optimizer"] = Dict{{"type", optimizer}, {"params", params}};
  config["plugins"] = Dict{{"path", gannet::List{Value(CONTRACT_PLUGIN)}}};
  return config;
}

// Two groups: sums of a group are not those of the model.
RANK_BODY(the_whole_contract) {
  auto world = gannet::test::world();
  const auto run = [&](int64_t stage, const std::string& states, int64_t align) {
    auto model = make_uneven();
    auto others = model->first->parameters();
    for (const auto& parameter : model->last->parameters()) others.push_back(parameter);
    auto engine =
        gannet::initialize(model, {.config = contract_config("Contract", stage, states, align),
                                   .model_parameters = {{.parameters = model->middle->parameters()}, {.parameters = others}}})
            .engine;
    train(*engine, 4);
    const std::string where = "stage " + std::to_string(stage) + " on " + states;
    for (const auto& group : engine->impl().groups) {
      expect(group.group_states[3].item<int64_t>() == 4, where + ": counted once a step");
      expect(group.group_states[2].eq(4).all().item<bool>(), where + ": each tensor is seen once a step");
      expect(group.group_states[1].gt(0).all().item<bool>(), where + ": the norms are known");
      expect(!group.group_states[0].defined(), where + ": states of elements lie in the ranges");
    }
    return parameters_of(*engine);
  };
  const at::Tensor expected = run(0, "none", 0);
  expect(difference(expected, run(0, "none", 0)) == 0, "it is repeatable");
  for (const int64_t stage : {1, 2, 3})
    for (const std::string states : {"none", "cpu", "nvme"})
      for (const int64_t align : {0, 256}) {
        const double off = difference(run(stage, states, align), expected);
        expect(off < 1e-6, "stage " + std::to_string(stage) + " on " + states + " is off by " + std::to_string(off));
      }
}

// The same samples on every rank, so that the mean gradient does not depend on their number.
RANK_BODY(contract_parameters) {
  auto world = gannet::test::world();
  auto engine = gannet::initialize(make_uneven(), {.config = contract_config("Contract", 2)}).engine;
  for (int64_t step = 0; step < 3; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine->backward(engine->forward(x, y));
    engine->step();
  }
  const at::Tensor parameters = parameters_of(*engine);
  if (world->rank() == 0) torch::save(parameters, variable("FOLDER") + "/of" + std::to_string(world->size()) + ".pt");
}

// States of tensors and of the group are saved and resumed, from any stage to any.
RANK_BODY(contract_resume) {
  auto world = gannet::test::world();
  const auto engine_of = [&](int64_t stage) {
    return gannet::initialize(make_uneven(), {.config = contract_config("Contract", stage)}).engine;
  };
  auto straight = engine_of(0);
  train(*straight, 6);
  const at::Tensor expected = parameters_of(*straight);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 0}, {2, 0}, {3, 1}, {0, 3}}) {
    auto before = engine_of(from);
    train(*before, 3);
    before->save_checkpoint(variable("FOLDER"), {.tag = "from" + std::to_string(from)});
    before.reset();
    auto after = engine_of(to);
    after->load_checkpoint(variable("FOLDER"), {.tag = "from" + std::to_string(from)});
    const auto& states = after->impl().groups[0].group_states;
    expect(states[3].item<int64_t>() == 3 && states[2].eq(3).all().item<bool>(), "the counts are resumed");
    train(*after, 3, 3);
    expect(difference(parameters_of(*after), expected) < 1e-6, "stage " + std::to_string(from) + " to " + std::to_string(to));
  }
}

// States of a group follow its tensors, not its number; a group of other tensors has none.
RANK_BODY(contract_groups) {
  auto world = gannet::test::world();
  const auto engine_of = [&](const gannet::List& groups) {
    Dict config = contract_config("Contract", 2);
    config["optimizer"].as_dict()["param_groups"] = groups;
    return gannet::initialize(make_uneven(), {.config = config}).engine;
  };
  const Dict first{{"match", "first.*"}}, biases{{"match", "*.bias"}};
  auto before = engine_of({first, biases});
  train(*before, 3);
  for (size_t g = 0; g < 3; ++g) before->impl().groups[g].group_states[3].fill_(static_cast<int64_t>(10 * g));
  before->save_checkpoint(variable("FOLDER"), {.tag = "groups"});
  const Dict rest_of_biases{{"match", gannet::List{"middle.bias", "last.bias"}}};
  auto after = engine_of({rest_of_biases, first});
  const auto receipt = after->load_checkpoint(variable("FOLDER"), {.tag = "groups"});
  for (const auto& [group, count] : {std::pair<size_t, int64_t>{0, 0}, {1, 20}, {2, 10}})
    expect(after->impl().groups[group].group_states[3].item<int64_t>() == count,
           "group " + std::to_string(group) + " has its count");
  contains(receipt.to_string(), "parameter group '*.bias' of the checkpoint is 'middle.bias, last.bias' here");
  auto other = engine_of({biases});
  const auto error = error_of([&] { other->load_checkpoint(variable("FOLDER"), {.tag = "groups"}); });
  contains(error.what(),
           "the optimizer keeps its state 'count' once for a parameter group, and group 'default' has other tensors");
}

// Parameters that join later come behind the others; what is known of those stays.
RANK_BODY(contract_join) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 2, 3}) {
    auto model = make_uneven();
    for (auto& parameter : model->first->parameters()) parameter.requires_grad_(false);
    auto engine = gannet::initialize(model, {.config = contract_config("Contract", stage)}).engine;
    train(*engine, 2);
    for (auto& parameter : model->first->parameters()) parameter.requires_grad_(true);
    train(*engine, 3, 2);
    const auto& states = engine->impl().groups[0].group_states;
    expect(states[3].item<int64_t>() == 5, "the group counts on");
    expect(torch::equal(states[2], torch::tensor({5, 5, 5, 5, 3, 3}, torch::kLong)), "each tensor has its own count");
    expect(states[1].numel() == 6 && states[1].gt(0).all().item<bool>(), "the new ones have norms, too");
  }
}

// For a device with its own memory and an optimizer that works in host memory.
RANK_BODY(contract_collective_on_the_host) {
  auto world = gannet::test::world();
  Dict config = contract_config("Contract", 2, "cpu");
  config["accelerator"] = Dict{{"type", "fake"}};
  auto engine = gannet::initialize(make_uneven(), {.config = config}).engine;
  const auto error = error_of([&] { train(*engine, 1); });
  expect(error.code() == gannet::ErrorCode::kUnsupported &&
             error.message().find("a collective was asked for of host memory") != std::string::npos,
         error.message());
}

// The collective fails: its error is reported, and not one of the plugin, which passed it on.
RANK_BODY(lost_in_a_collective) {
  auto world = gannet::test::world();
  auto engine = gannet::initialize(make_uneven(), {.config = contract_config("Leaves")}).engine;
  train(*engine, 1);
  const auto error = error_of([&] { train(*engine, 1); });
  expect(error.code() != gannet::ErrorCode::kPlugin && error.message().find("Leaves") == std::string::npos, error.message());
  expect(std::string(error.what()).find("rank 1") != std::string::npos, "it names the rank: " + error.message());
}

RANK_BODY(silent_optimizer) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 2, 3})
    train(*gannet::initialize(make_uneven(), {.config = contract_config("Silent", stage)}).engine, 2);
}

RANK_BODY(schedules_by_role) {
  const Dict warmup{{"type", "WarmupLR"},
                    {"params", Dict{{"warmup_min_lr", 0.0}, {"warmup_max_lr", 0.5}, {"warmup_num_steps", 2}}}};
  Dict config = contract_config("Contract");
  config["scheduler"] = warmup;
  auto engine = gannet::initialize(make_uneven(), {.config = config}).engine;
  train(*engine, 5);
  expect(engine->get_lr() == std::vector<double>{0.5}, "the schedule sets the parameter that is a learning rate, named eta");
  config = contract_config("Rateless");
  config["scheduler"] = warmup;
  const auto error = error_of([&] { gannet::initialize(make_uneven(), {.config = config}); });
  expect(error.code() == gannet::ErrorCode::kConfig, "a schedule without a learning rate to set is a mistake in the config");
  expect(error.message().find("scheduler 'WarmupLR' sets the learning rate, and optimizer 'Rateless' has no parameter in that "
                              "role") != std::string::npos,
         "both are named: " + error.message());
  auto rateless = gannet::initialize(make_uneven(), {.config = contract_config("Rateless")}).engine;
  const auto of_set_lr = error_of([&] { rateless->set_lr(0.1); });
  expect(of_set_lr.code() == gannet::ErrorCode::kUnsupported, "set_lr has nothing to set: " + of_set_lr.message());
  const auto of_function = error_of([&] {
    gannet::initialize(make_uneven(), {.config = contract_config("Rateless"), .lr_scheduler = [](int64_t) { return 0.1; }});
  });
  expect(of_function.message().find("the program's schedule sets the learning rate") != std::string::npos, of_function.message());
}

class PluginContract : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(PluginContract, HoldsAtEveryStageAndOnEveryTierOnOneRank) { run("the_whole_contract", 1); }
TEST_F(PluginContract, HoldsAtEveryStageAndOnEveryTierOnTwoRanks) { run("the_whole_contract", 2); }
TEST_F(PluginContract, OneRankTrainsAsFourDo) {
  run("contract_parameters", 1);
  run("contract_parameters", 4);
  at::Tensor of[2];
  torch::load(of[0], (folder_ / "of1.pt").string());
  torch::load(of[1], (folder_ / "of4.pt").string());
  EXPECT_LT(difference(of[1], of[0]), 1e-6) << "but for the order of sums";
}
TEST_F(PluginContract, NumbersOfTensorsAndGroupsAreResumed) { run("contract_resume", 2); }
TEST_F(PluginContract, StatesOfAGroupFollowItsTensors) { run("contract_groups", 2); }
TEST_F(PluginContract, ParametersThatJoinComeBehindTheOthers) { run("contract_join", 2); }
TEST_F(PluginContract, ACollectiveOfHostMemoryBesideADevicesOwnIsRefused) { run("contract_collective_on_the_host", 2); }
TEST_F(PluginContract, ALostRankIsNotAnErrorOfThePluginThatWaitsForIt) {
  const auto outcomes = run_ranks("lost_in_a_collective", 2);
  EXPECT_EQ(outcomes[0].status, 0) << outcomes[0].output;
  EXPECT_EQ(outcomes[1].status, 9) << outcomes[1].output;
}
TEST_F(PluginContract, AnOptimizerWithoutCapabilitiesGetsWholeTensors) { run("silent_optimizer", 2); }
TEST_F(PluginContract, SchedulesSetRoles) { run("schedules_by_role", 1); }

}  // namespace
