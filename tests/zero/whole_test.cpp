// Optimizers that need whole tensors: at every stage and on every tier no shard and no page ends inside one, and training is
// bitwise that of stage 0.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

// `states`, `params`: "none" or a tier.
Dict whole_config(int64_t stage, const std::string& states, const std::string& params, const std::string& optimizer = "Whole") {
  const auto tier = [](const std::string& device) {
    Dict block{{"device", device}};
    if (device == "nvme") block["nvme_path"] = variable("FOLDER");
    return block;
  };
  Dict zero{{"stage", stage},
            {"reduce_bucket_size", 400},
            {"sub_group_size", 4096},
            {"stage3_param_persistence_threshold", 40},
            {"stage3_max_reuse_distance", 0}};
  if (states != "none") zero["offload_optimizer"] = tier(states);
  if (params != "none") zero["offload_param"] = tier(params);
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config["optimizer"] = Dict{{"type", optimizer}, {"params", Dict{{"lr", 0.01}}}};
  config["plugins"] = Dict{{"path", gannet::List{Value(WHOLE_PLUGIN)}}};
  return config;
}

RANK_BODY(whole_tensors) {
  auto world = gannet::test::world();
  const auto run = [&](int64_t stage, const std::string& states, const std::string& params) {
    auto engine = gannet::initialize(make_uneven(), {.config = whole_config(stage, states, params)}).engine;
    train(*engine, 4);
    return parameters_of(*engine);
  };
  const at::Tensor expected = run(0, "none", "none");
  for (const int64_t stage : {0, 1, 2, 3})
    for (const std::string states : {"none", "cpu", "nvme"})
      for (const std::string params : {"none", "cpu", "nvme"}) {
        if (stage == 0 && states != "none") continue;
        if (params != "none" && stage < 3) continue;
        expect(torch::equal(run(stage, states, params), expected),
               "stage " + std::to_string(stage) + ", states on " + states + ", parameters on " + params);
      }
}

// A rank has the whole of a tensor or nothing of it, and not all of them.
RANK_BODY(owners) {
  auto world = gannet::test::world();
  for (const int64_t stage : {1, 2, 3}) {
    auto engine = gannet::initialize(make_uneven(), {.config = whole_config(stage, "none", "none")}).engine;
    int own = 0;
    for (const auto& name : engine->parameter_names()) {
      const int64_t numel = engine->full_fp32_parameter(name).numel();  // every rank calls it
      const auto part = engine->local_fp32_parameter(name);
      if (!part.values.defined()) continue;
      ++own;
      expect(part.begin == 0 && part.values.numel() == numel, name + " is whole");
    }
    expect(own > 0 && own < 6, "rank " + std::to_string(world->rank()) + " has " + std::to_string(own) + " of 6 tensors");
  }
}

// Saved at a stage with tensors on one rank each, resumed at another with all of them on every rank, and back.
RANK_BODY(resume) {
  auto world = gannet::test::world();
  const std::string folder = variable("FOLDER") + "/checkpoints";
  const auto engine_of = [&](int64_t stage, const std::string& states) {
    return gannet::initialize(make_uneven(), {.config = whole_config(stage, states, "none")}).engine;
  };
  auto straight = engine_of(0, "none");
  train(*straight, 6);
  const at::Tensor expected = parameters_of(*straight);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{2, 0}, {3, 1}, {0, 3}}) {
    auto before = engine_of(from, from == 3 ? "nvme" : "none");
    train(*before, 3);
    before->save_checkpoint(folder, {.tag = "from" + std::to_string(from)});
    before.reset();
    auto after = engine_of(to, to == 3 ? "nvme" : "none");
    after->load_checkpoint(folder, {.tag = "from" + std::to_string(from)});
    train(*after, 3, 3);
    expect(torch::equal(parameters_of(*after), expected), "stage " + std::to_string(from) + " to " + std::to_string(to));
  }
}

class WholeTensors : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(WholeTensors, AtEveryStageAndOnEveryTierOnOneRank) { run("whole_tensors", 1); }
TEST_F(WholeTensors, AtEveryStageAndOnEveryTierOnTwoRanks) { run("whole_tensors", 2); }
TEST_F(WholeTensors, EachIsOnOneRank) { run("owners", 2); }
TEST_F(WholeTensors, ACheckpointLoadsAtOtherStages) { run("resume", 2); }

}  // namespace
