// swap_optimizer at every stage and on every tier: against plain LibTorch that continues with another optimizer, refused with
// equal bits afterwards, saved and resumed.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/impl.h"
#include "plugin/support.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::ErrorCode;
using gannet::List;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

const Dict kAdamw{{"lr", 1e-2}, {"weight_decay", 0.1}, {"eps", 1e-6}};
const Dict kSgd{{"lr", 0.05}, {"momentum", 0.9}};

Dict swap_config(const std::string& type, const Dict& params, int64_t stage, const std::string& tier = "none") {
  Dict zero{{"stage", stage}, {"stage3_param_persistence_threshold", 20}};
  if (tier != "none") {
    Dict to{{"device", tier}};
    if (tier == "nvme") to["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = to;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config["optimizer"] = Dict{{"type", type}, {"params", params}};
  config["plugins"] = Dict{{"path", List{Value(CONTRACT_PLUGIN), Value(WHOLE_PLUGIN)}}};
  return config;
}

std::shared_ptr<gannet::Engine<NetImpl>> engine_of(const Dict& config) {
  return gannet::initialize(make_net(), {.config = config}).engine;
}

at::Tensor in_model_order(gannet::EngineBase& engine) { return parameters_of(engine).to(torch::kDouble); }

// AdamW, then SGD with momentum, then AdamW from the beginning: LibTorch's own objects, each new.
at::Tensor reference(uint32_t world) {
  auto net = make_net();
  const auto run = [&](torch::optim::Optimizer& optimizer, int64_t first, int64_t steps) {
    for (int64_t step = first; step < first + steps; ++step) {
      optimizer.zero_grad();
      for (uint32_t rank = 0; rank < world; ++rank) {
        auto [x, y] = make_batch(step * world + rank, 4);
        (net->forward(x, y) / static_cast<double>(world)).backward();
      }
      optimizer.step();
    }
  };
  const auto adamw = [&] {
    return torch::optim::AdamW(net->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1).eps(1e-6));
  };
  auto first = adamw();
  run(first, 0, 4);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  run(sgd, 4, 4);
  auto again = adamw();
  run(again, 8, 4);
  return flat_parameters(*net);
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += name + ' ';
  return text;
}

RANK_BODY(swap_and_back) {
  auto world = gannet::test::world();
  const at::Tensor expected = reference(world->size());
  for (const int64_t stage : {0, 1, 2, 3})
    for (const std::string tier : {"none", "cpu", "nvme"}) {
      if (stage == 0 && tier != "none") continue;
      auto engine = engine_of(swap_config("AdamW", kAdamw, stage, tier));
      train(*engine, 4);
      const auto there = engine->swap_optimizer("SGD", kSgd);
      same(there.from + " " + there.to, std::string("AdamW SGD"), "names");
      same(list(there.dropped), std::string("exp_avg exp_avg_sq "), "dropped");
      same(list(there.filled), std::string("momentum_buffer "), "filled");
      same(list(there.kept), std::string(), "kept");
      same(engine->optimizer_handle()->type(), std::string("SGD"), "the type");
      train(*engine, 4, 4);
      engine->swap_optimizer("adamw", R"({"lr": 0.01, "weight_decay": 0.1, /* as before */ "eps": 1e-6})");
      train(*engine, 4, 8);
      const double off = difference(in_model_order(*engine), expected);
      expect(off < 2e-6, "stage " + std::to_string(stage) + " on " + tier + " is off by " + std::to_string(off));
    }
}

// States that both have go over to the bit, and updates count on.
RANK_BODY(swap_keeps) {
  auto world = gannet::test::world();
  for (const auto& [stage, dtype] :
       {std::pair<int64_t, std::string>{0, "fp32"}, {2, "fp32"}, {3, "fp32"}, {2, "bf16"}, {3, "bf16"}}) {
    Dict config = swap_config("AdamW", kAdamw, stage);
    if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
    auto straight = engine_of(config), swapped = engine_of(config);
    train(*straight, 6);
    train(*swapped, 3);
    Dict adam = kAdamw;
    adam["adam_w_mode"] = true;
    const auto receipt = swapped->swap_optimizer("Adam", adam);
    same(list(receipt.kept), std::string("exp_avg exp_avg_sq "), "kept: " + receipt.to_string());
    same(list(receipt.filled) + list(receipt.dropped), std::string(), "no other");
    train(*swapped, 3, 3);
    expect(torch::equal(in_model_order(*swapped), in_model_order(*straight)), "the same rule under another name: equal bits");
  }
}

// Every mistake is reported on all ranks, and the former optimizer continues as if nothing had been
// asked.
RANK_BODY(swap_refused) {
  auto world = gannet::test::world();
  const bool is_first = world->rank() == 0;
  for (const int64_t stage : {0, 2, 3}) {
    auto straight = engine_of(swap_config("AdamW", kAdamw, stage)), asked = engine_of(swap_config("AdamW", kAdamw, stage));
    train(*straight, 6);
    train(*asked, 3);
    const auto refused = [&](const std::string& type, const Value& params, const std::vector<Dict>& overrides, ErrorCode code,
                             const std::string& part) {
      const auto error = error_of([&] { asked->swap_optimizer(type, params, overrides); });
      contains(error.what(), part);
      expect(error.code() == code, std::string("another code: ") + error.what());
    };
    refused("Sdg", Dict(), {}, ErrorCode::kPlugin, "there is no optimizer plugin 'Sdg' for device 'cpu'; did you mean 'sgd'?");
    refused("SGD", Dict{{"momentumm", 0.9}}, {}, ErrorCode::kConfig, "has no parameter 'momentumm'; did you mean 'momentum'?");
    refused("SGD", "{\n \"lr\": -1}", {}, ErrorCode::kConfig,
            "swap_optimizer's params:2:2: parameter 'lr' of optimizer plugin SGD");
    refused("SGD", "{\"lr\": 1,, }", {}, ErrorCode::kConfig, "swap_optimizer's params:1:");
    refused("SGD", 3, {}, ErrorCode::kArgument, "swap_optimizer was given an integer as params");
    refused("SGD", kSgd, {Dict(), Dict()}, ErrorCode::kArgument, "overrides for 2 parameter groups, and there are 1");
    if (world->size() > 1) {
      refused(is_first ? "SGD" : "Adam", Dict{{"lr", 0.1}}, {}, ErrorCode::kMismatch, "swap_optimizer");
      refused("SGD", Dict{{"lr", is_first ? 0.1 : 0.2}}, {}, ErrorCode::kMismatch, "lr = 0.");
      refused("SGD", is_first ? Dict{{"lr", -1}} : Dict(), {}, ErrorCode::kConfig,
              "rank 0: swap_optimizer's params: parameter 'lr'");
      if (stage > 0)
        refused("Whole", Dict(), {}, ErrorCode::kUnsupported, "optimizer 'Whole' needs whole tensors, and the partition");
    }
    same(asked->optimizer_handle()->type(), std::string("AdamW"), "the former one");
    train(*asked, 3, 3);
    expect(torch::equal(in_model_order(*asked), in_model_order(*straight)), "equal bits after what was refused");
  }
}

RANK_BODY(swap_in_a_step) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 2}) {
    Dict config = swap_config("AdamW", kAdamw, stage);
    config["gradient_accumulation_steps"] = 2;
    auto engine = engine_of(config);
    auto [x, y] = make_batch(world->rank(), 4);
    const at::Tensor loss = engine->forward(x, y);
    contains(message_of([&] { engine->swap_optimizer("SGD", kSgd); }), "one is between forward() and step()");
    engine->backward(loss);
    contains(message_of([&] { engine->swap_optimizer("SGD", kSgd); }), "in the middle of step 1");
    engine->step();
    contains(message_of([&] { engine->swap_optimizer("SGD", kSgd); }),
             "in the middle of step 1: 1 of its 2 micro-batches have ended");
    engine->backward(engine->forward(x, y));
    engine->step();
    same(engine->swap_optimizer("SGD", kSgd).to, std::string("SGD"), "at the boundary");
  }
}

// A schedule sets roles: one that the new optimizer lacks is refused, and the position stays.
RANK_BODY(swap_under_a_schedule) {
  Dict config = swap_config("AdamW", kAdamw, 0);
  config["scheduler"] =
      Dict{{"type", "WarmupLR"}, {"params", Dict{{"warmup_max_lr", 0.1}, {"warmup_num_steps", 10}, {"warmup_type", "linear"}}}};
  auto engine = engine_of(config);
  train(*engine, 4);
  const auto before = engine->get_lr();
  contains(message_of([&] { engine->swap_optimizer("Rateless"); }),
           "sets the learning rate, and optimizer 'Rateless' has no parameter");
  engine->swap_optimizer("SGD", kSgd);
  expect(engine->get_lr() == before, "the rate is the schedule's, at its position");
  train(*engine, 1, 4);
  expect(engine->get_lr()[0] > before[0], "and it continues");
}

// Overrides of groups apply where the new plugin has such a parameter; those given with the swap take their place.
RANK_BODY(swap_with_groups) {
  auto world = gannet::test::world();
  Dict config = swap_config("AdamW", kAdamw, 2);
  config["optimizer"].as_dict()["param_groups"] = List{Dict{{"match", "*.bias"}, {"weight_decay", 0}, {"eps", 1e-7}}};
  auto engine = engine_of(config);
  train(*engine, 2);
  Dict params = kSgd;
  params["weight_decay"] = 0.2;
  const auto receipt = engine->swap_optimizer("SGD", params);
  auto optimizer = engine->optimizer_handle();
  same(optimizer->group(0).get("weight_decay"), 0.2, "the params");
  same(optimizer->group(1).get("weight_decay"), 0.0, "the override");
  contains(receipt.to_string(), "eps of group '*.bias' has no effect: SGD has no such parameter");
  train(*engine, 2, 2);
  engine->swap_optimizer("SGD", params, {Dict(), Dict{{"weight_decay", 0.3}}});
  same(optimizer->group(1).get("weight_decay"), 0.3, "the swap's override");
  train(*engine, 2, 4);
}

// Whole tensors and numbers of tensors and groups: from an optimizer that asks for more of the partition, and back.
RANK_BODY(swap_from_whole_tensors) {
  auto world = gannet::test::world();
  for (const int64_t stage : {0, 1, 2, 3}) {
    const std::string where = "stage " + std::to_string(stage);
    auto engine = engine_of(swap_config("Whole", Dict(), stage));
    train(*engine, 3);
    engine->swap_optimizer("AdamW", kAdamw);
    train(*engine, 3, 3);
    const auto back = engine->swap_optimizer("Whole");
    same(list(back.filled), std::string("count momentum "), where);
    train(*engine, 2, 6);
    expect(engine->impl().groups[0].group_states[1].eq(2).all().item<bool>(), where + ": counts begin again");
    engine->swap_optimizer("Contract", Dict{{"eta", 0.01}});
    train(*engine, 2, 8);
    same(engine->impl().groups[0].group_states[3].item<int64_t>(), int64_t{2}, where + ": counted");
  }
  auto whole = engine_of(swap_config("AdamW", kAdamw, 0));
  train(*whole, 2);
  same(whole->swap_optimizer("Whole").to, std::string("Whole"), "nothing is cut at stage 0");
  train(*whole, 2, 2);
}

// Later checkpoints hold the new optimizer, and a config that names the former one is an error.
RANK_BODY(swap_saved) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER");
  auto straight = engine_of(swap_config("AdamW", kAdamw, 2));
  train(*straight, 3);
  straight->swap_optimizer("SGD", kSgd);
  train(*straight, 2, 3);
  straight->swap_optimizer("AdamW", kAdamw);
  train(*straight, 2, 5);
  straight->save_checkpoint(folder, {.tag = "adamw"});
  straight->swap_optimizer("SGD", kSgd);
  train(*straight, 2, 7);
  straight->save_checkpoint(folder, {.tag = "sgd"});
  train(*straight, 2, 9);
  const at::Tensor expected = in_model_order(*straight);
  straight.reset();

  auto named = engine_of(swap_config("SGD", kSgd, 1));
  named->load_checkpoint(folder, {.tag = "sgd"});
  train(*named, 2, 9);
  expect(difference(in_model_order(*named), expected) < 1e-6, "resumed with the new optimizer in the config");

  auto old = engine_of(swap_config("AdamW", kAdamw, 2));
  const auto error = error_of([&] { old->load_checkpoint(folder, {.tag = "sgd"}); });
  contains(error.what(), "the checkpoint was saved with optimizer 'SGD', and this engine has 'AdamW'");
  contains(error.what(), "engine->swap_optimizer() to it before the load");
  old->swap_optimizer("SGD", kSgd);
  old->load_checkpoint(folder, {.tag = "sgd"});
  train(*old, 2, 9);
  expect(difference(in_model_order(*old), expected) < 1e-6, "resumed by a swap before the load");

  // Updates of AdamW count from its swap on, after a resume too.
  auto counted = engine_of(swap_config("AdamW", kAdamw, 3));
  counted->load_checkpoint(folder, {.tag = "adamw"});
  same(counted->impl().groups[0].lag, int64_t{5}, "updates before the swap");
  counted->swap_optimizer("SGD", kSgd);
  train(*counted, 4, 7);
  expect(difference(in_model_order(*counted), expected) < 1e-6, "the same from there on");
  // One rule, two names: it loads, and the receipt says so.
  Dict adam = kAdamw;
  const auto receipt = engine_of(swap_config("Adam", adam, 0))->load_checkpoint(folder, {.tag = "adamw"});
  contains(receipt.to_string(), "the checkpoint was saved with optimizer 'AdamW', and this engine has 'Adam'");
}

RANK_BODY(swap_without_a_plugin) {
  auto net = make_net();
  auto own = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  Dict config = swap_config("SGD", kSgd, 0);
  config.erase("optimizer");
  auto engine = gannet::initialize(net, {.config = config, .optimizer = own}).engine;
  contains(message_of([&] { engine->swap_optimizer("SGD", kSgd); }),
           "the program's own torch::optim::Optimizer steps the parameters");
  auto untrained = gannet::initialize(make_net(), {.config = config}).engine;
  contains(message_of([&] { untrained->swap_optimizer("SGD", kSgd); }), "there is no optimizer");
}

class Swap : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(Swap, AndBackTrainsAsPlainLibTorchDoesOnOneRank) { run("swap_and_back", 1); }
TEST_F(Swap, AndBackTrainsAsPlainLibTorchDoesOnTwoRanks) { run("swap_and_back", 2); }
TEST_F(Swap, StatesThatBothHaveContinueToTheBit) { run("swap_keeps", 2); }
TEST_F(Swap, WhatIsRefusedLeavesTheFormerOptimizerToTheBitOnOneRank) { run("swap_refused", 1); }
TEST_F(Swap, WhatIsRefusedLeavesTheFormerOptimizerToTheBitOnTwoRanks) { run("swap_refused", 2); }
TEST_F(Swap, IsAnErrorWithinAStep) { run("swap_in_a_step", 2); }
TEST_F(Swap, AScheduleContinuesAtItsPlace) { run("swap_under_a_schedule", 1); }
TEST_F(Swap, OverridesOfGroupsApplyWhereTheyCan) { run("swap_with_groups", 2); }
TEST_F(Swap, AnOptimizerOfWholeTensorsMayBeSwappedOutAndIn) { run("swap_from_whole_tensors", 2); }
TEST_F(Swap, CheckpointsAreOfTheOptimizerAtHand) { run("swap_saved", 2); }
TEST_F(Swap, NeedsAPluginToReplace) { run("swap_without_a_plugin", 1); }

}  // namespace
