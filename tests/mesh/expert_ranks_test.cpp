// Experts that the axis expert shares out: a model of them trains as the whole one does, and its checkpoints are those of the
// whole one.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mesh/expert_model.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

// A sum of n fp32 numbers in another order differs by up to n roundings of 2^-24 of their absolute sum. Here 16 tokens' gradients
// are added over ranks in another order than over rows, 4 times: 64 * 6e-8. AdamW's quotient keeps relative errors as they are.
constexpr double kTolerance = 4e-6;

std::map<std::string, std::string> layout(const char* experts, const char* tensor, const std::string& folder) {
  return {{"EXPERT", experts}, {"TENSOR", tensor}, {"FOLDER", folder}};
}

// Losses and norms of `body` on 4 ranks with 2 ranks along expert beside those on one rank.
void expect_figures_of_whole(const char* body, size_t count, double tolerance) {
  const auto whole = run_ranks(body, 1, {.environment = layout("", "", "")}),
             split = run_ranks(body, 4, {.environment = layout("2", "", "")});
  expect_all_succeed(whole);
  expect_all_succeed(split);
  const auto expected = figures(whole), found = figures(split);
  ASSERT_EQ(expected.size(), count);
  ASSERT_EQ(found.size(), count);
  for (size_t i = 0; i < count; ++i) EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << i;
}

RANK_BODY(trains_experts) {
  for (const auto& [stage, tier] : {std::pair{0, ""}, {1, ""}, {2, ""}, {3, ""}, {2, "cpu"}}) {
    MixtureRun run(split_config(stage, tier));
    run.train(0, 8);
    const std::string name = "stage" + std::to_string(stage) + tier + variable("EXPERT") + variable("TENSOR");
    run.engine->save_fp32_model(variable("FOLDER"), name + ".safetensors");
    run.engine->save_checkpoint(variable("FOLDER") + "/" + name);
  }
}
void compare_with_whole(int ranks, const char* experts, const char* tensor) {
  const TemporaryFolder folder;
  const auto run = [&](int count, const char* degree, const char* of_layers) {
    const auto outcomes = run_ranks("trains_experts", count, {.environment = layout(degree, of_layers, folder.string())});
    expect_all_succeed(outcomes);
    return figures(outcomes);
  };
  const auto whole = run(1, "", ""), split = run(ranks, experts, tensor);
  ASSERT_EQ(whole.size(), 5u * 4 * 2);  // stages and the tier, steps, loss and norm
  ASSERT_EQ(split.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(split[i], whole[i], kTolerance * std::abs(whole[i])) << i;
  for (const char* stage : {"0", "1", "2", "3", "2cpu"}) {
    const auto name = folder.string() + "/stage" + stage;
    const auto expected = gannet::load_safetensors(name + ".safetensors"),
               found = gannet::load_safetensors(name + experts + tensor + ".safetensors"),
               checkpointed = tensors_of(name + experts + tensor, "global_step4");
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, tensor_there] : expected) {
      ASSERT_EQ(found.at(key).sizes(), tensor_there.sizes()) << key;
      EXPECT_LT(difference(found.at(key), tensor_there), kTolerance) << key << ", stage " << stage;
      EXPECT_TRUE(found.at(key).equal(checkpointed.at("parameter/" + key))) << key << ", stage " << stage;
    }
  }
}
TEST(Experts, AMixtureTrainsAsTheWholeOne) { compare_with_whole(4, "2", ""); }
TEST(Experts, EachRankMayHoldExpertsAlone) { compare_with_whole(4, "4", ""); }
TEST(Experts, RanksAlongTensorHoldTheSameOnes) { compare_with_whole(4, "2", "2"); }

// Whole tensors in a checkpoint: it loads at any degree and number of ranks, to the bit, and states with it.
RANK_BODY(saves_experts) {
  const std::string folder = variable("FOLDER");
  MixtureRun run(with_average(split_config(std::atoi(variable("STAGE").c_str()), variable("TIER"))),
                 variable("LOAD").empty() ? 1 : 7);
  if (variable("LOAD").empty())
    run.train(0, 4);
  else
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
  run.engine->save_checkpoint(folder + "/" + variable("SAVE"), {.tag = "all"});
}
TEST(Experts, ACheckpointLoadsAtEveryDegreeAndBack) {
  for (const auto& [stage, tier] : {std::pair{"0", ""}, {"3", ""}, {"2", "nvme"}}) {
    const TemporaryFolder folder;
    std::map<std::string, at::Tensor> expected;
    std::string from;
    for (const auto& [count, experts, tensor] :
         {std::tuple{4, "2", ""}, {1, "", ""}, {4, "4", ""}, {2, "2", ""}, {4, "2", "2"}, {4, "2", ""}}) {
      const bool has_begun = !from.empty(), is_short = std::string(stage) != "3" && !ranks::is_full();
      if (is_short && has_begun && count == 4) continue;
      const std::string to = std::to_string(count) + experts + tensor + from;
      auto environment = layout(experts, tensor, folder.string());
      environment.insert({{"STAGE", stage}, {"TIER", tier}, {"LOAD", from}, {"SAVE", to}});
      expect_all_succeed(run_ranks("saves_experts", count, {.environment = environment}));
      const auto found = tensors_of(folder.string() + "/" + to, "all");
      if (from.empty()) expected = found;
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [name, tensor_there] : expected) {
        ASSERT_EQ(found.at(name).sizes(), tensor_there.sizes()) << name;
        EXPECT_TRUE(found.at(name).equal(tensor_there)) << name << " with " << count << " ranks, expert " << experts;
      }
      from = to;
    }
    EXPECT_EQ(expected.at("parameter/up").size(0), kExperts);
    EXPECT_EQ(expected.at("state/exp_avg/up").size(0), kExperts);
    EXPECT_EQ(expected.at("average/up").size(0), kExperts);
    EXPECT_FALSE(expected.at("average/up").equal(expected.at("parameter/up")));
  }
}

// Between two boundaries: gradients are saved by rank, or summed over the ranks that hold the same experts.
RANK_BODY(continues_experts) {
  for (const int64_t stage : {0, 2, 3})
    for (const char* dtype : {"fp32", "bf16"}) {
      const std::string folder = variable("FOLDER") + "/" + std::to_string(stage) + dtype;
      Dict config = split_config(stage);
      if (dtype != std::string("fp32")) config[dtype] = Dict{{"enabled", true}};
      MixtureRun straight(config);
      straight.train(0, 3);
      straight.engine->save_checkpoint(folder);
      straight.train(3, 5);
      MixtureRun resumed(config, /*seed=*/9);
      resumed.engine->load_checkpoint(folder);
      resumed.train(3, 5);
      const auto expected = straight.engine->fp32_parameters(), found = resumed.engine->fp32_parameters();
      for (size_t i = 0; i < expected.size(); ++i)
        expect(found.at(i).second.equal(expected[i].second), "resumed: " + expected[i].first);
    }
}
TEST(Experts, ResumesBetweenTwoBoundariesToTheBit) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("continues_experts", 4, {.environment = layout("2", "", folder.string())}));
}

// The masters are fp32: losses differ from the fp32 run's by what rounding to 8 bits does to them, 2^-8, and a few layers add up.
RANK_BODY(trains_experts_in_bf16) {
  Dict config = split_config(2);
  config["bf16"] = Dict{{"enabled", true}};
  MixtureRun(config).train(0, 8);
}
TEST(Experts, TrainsIn16Bits) { expect_figures_of_whole("trains_experts_in_bf16", 4u * 2, 0.02); }

// A sum over each tensor, and over the model, is that of the whole one.
RANK_BODY(sums_of_experts) {
  for (const int64_t stage : {0, 2}) {
    Dict config = split_config(stage);
    config["optimizer"] = Dict{{"type", "Sums"}, {"params", Dict{{"lr", 0.01}}}};
    config["plugins"] = Dict{{"path", gannet::List{gannet::Value(PROBE_PLUGIN)}}};
    MixtureRun(config).train(0, 8);
  }
}
TEST(Experts, SumsOfATensorAreThoseOfTheWholeOne) { expect_figures_of_whole("sums_of_experts", 2u * 4 * 2, kTolerance); }

}  // namespace
