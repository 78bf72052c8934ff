// Weights that stages of a pipeline hold together: a model cut into stages trains as the whole one does, and its checkpoints are
// those of the whole one.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "mesh/tied_model.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;

// Sums of fp32 numbers in another order: those of one weight's two uses over ranks and micro-batches, as in the tests of experts.
constexpr double kTieTolerance = 4e-6;

std::map<std::string, std::string> stages_of(const std::string& pipe, const std::string& folder) {
  return {{"PIPE", pipe}, {"FOLDER", folder}};
}

std::vector<std::string> tie_lines_of(const std::vector<ranks::Outcome>& outcomes, const std::string& prefix) {
  std::vector<std::string> lines;
  for (const auto& outcome : outcomes) {
    std::istringstream output(outcome.output);
    for (std::string line; std::getline(output, line);)
      if (line.rfind(prefix, 0) == 0) lines.push_back(line);
  }
  return lines;
}

// Loss and norm of each step, from the rank that has the loss.
std::vector<double> tie_figures_of(const std::vector<ranks::Outcome>& outcomes) {
  std::vector<double> all;
  for (const std::string& line : tie_lines_of(outcomes, "figure: ")) {
    std::istringstream numbers(line.substr(8));
    for (double number; numbers >> number;) all.push_back(number);
  }
  return all;
}

// Every stage that holds the weight has printed the same hash of it.
void expect_equal_copies(const std::vector<ranks::Outcome>& outcomes, size_t runs) {
  const auto lines = tie_lines_of(outcomes, "copy: ");
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), runs);
  EXPECT_GT(lines.size(), runs);
}

RANK_BODY(trains_stages) {
  for (const auto& [stage, tier] : {std::pair{0, ""}, {1, ""}, {2, ""}, {3, ""}, {2, "cpu"}}) {
    StagesRun run(split_config(stage, tier));
    run.train(0, 8);
    const std::string name = "stage" + std::to_string(stage) + tier;
    run.engine->save_checkpoint(variable("FOLDER") + "/" + name + "_" + variable("PIPE") + std::to_string(run.world->size()));
    run.require_equal_copies(name);
  }
}
TEST(Ties, AModelInStagesTrainsAsTheWholeOne) {
  const TemporaryFolder folder;
  const auto run = [&](int count, const char* pipe) {
    const auto outcomes = run_ranks("trains_stages", count, {.environment = stages_of(pipe, folder.string())});
    expect_all_succeed(outcomes);
    if (pipe != std::string("1")) expect_equal_copies(outcomes, 5);
    return tie_figures_of(outcomes);
  };
  const auto whole = run(1, "1");
  ASSERT_EQ(whole.size(), 5u * 4 * 2);  // stages and the tier, steps, loss and norm
  for (const auto& [count, pipe] : {std::pair{2, "2"}, {4, "2"}, {3, "3"}}) {
    const auto found = run(count, pipe);
    ASSERT_EQ(found.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(found[i], whole[i], kTieTolerance * std::abs(whole[i])) << i;
    for (const char* stage : {"0", "1", "2", "3", "2cpu"}) {
      const std::string name = folder.string() + "/stage" + stage + "_";
      const auto expected = tensors_of(name + "11", "global_step4"),
                 saved = tensors_of(name + pipe + std::to_string(count), "global_step4");
      ASSERT_TRUE(expected.contains("parameter/first.words"));
      for (const auto& [key, tensor] : expected) {
        if (key.starts_with("rng/")) continue;
        ASSERT_TRUE(saved.contains(key)) << key;
        EXPECT_LT(difference(saved.at(key), tensor), kTieTolerance) << key << ", stage " << stage << ", " << count << " ranks";
      }
      EXPECT_FALSE(saved.contains("parameter/last.words"));
    }
  }
}

// On one rank along data the sums are those of autograd, in the order of two terms: the same to the bit.
RANK_BODY(trains_stages_alone) {
  for (const int64_t stage : {0, 1, 2, 3}) {
    Dict config = with_average(split_config(stage));
    config["gradient_accumulation_steps"] = 1;
    config["gradient_clipping"] = 0.0;
    StagesRun run(config);
    run.train(0, 6);
    run.engine->save_checkpoint(variable("FOLDER") + "/" + variable("PIPE") + std::to_string(stage), {.tag = "all"});
  }
}
TEST(Ties, WithOneRankAlongDataStagesHaveTheBitsOfTheWholeModel) {
  const TemporaryFolder folder;
  for (const auto& [count, pipe] : {std::pair{1, "1"}, {2, "2"}, {3, "3"}})
    expect_all_succeed(run_ranks("trains_stages_alone", count, {.environment = stages_of(pipe, folder.string())}));
  for (const char* stage : {"0", "1", "2", "3"}) {
    const auto expected = tensors_of(folder.string() + "/1" + stage, "all");
    for (const char* pipe : {"2", "3"})
      for (const auto& [key, tensor] : tensors_of(folder.string() + "/" + pipe + stage, "all"))
        if (!key.starts_with("rng/")) EXPECT_TRUE(expected.at(key).equal(tensor)) << key << ", " << pipe << " stages";
  }
}

// One tensor in a checkpoint: it loads at any number of stages, to the bit, and states with it.
RANK_BODY(saves_stages) {
  const std::string folder = variable("FOLDER");
  StagesRun run(with_average(split_config(std::atoi(variable("STAGE").c_str()), variable("TIER"))),
                variable("LOAD").empty() ? 1 : 7);
  if (variable("LOAD").empty())
    run.train(0, 4);
  else
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
  run.require_equal_copies("saved");
  run.engine->save_checkpoint(folder + "/" + variable("SAVE"), {.tag = "all"});
  run.train(4, 2);
}
TEST(Ties, ACheckpointLoadsAtEveryNumberOfStagesAndBack) {
  for (const auto& [stage, tier] : {std::pair{"0", ""}, {"3", ""}, {"2", "nvme"}}) {
    const TemporaryFolder folder;
    std::map<std::string, at::Tensor> expected;
    std::vector<std::string> copy;
    std::string from;
    std::vector<std::pair<int, std::string>> meshes = {{2, "2"}, {1, "1"}, {2, "2"}};
    if (stage == std::string("3") || ranks::is_full()) meshes = {{2, "2"}, {1, "1"}, {4, "2"}, {3, "3"}, {2, "1"}, {2, "2"}};
    for (const auto& [count, pipe] : meshes) {
      const std::string to = std::to_string(count) + pipe + from;
      auto environment = stages_of(pipe, folder.string());
      environment.insert({{"STAGE", stage}, {"TIER", tier}, {"LOAD", from}, {"SAVE", to}});
      const auto outcomes = run_ranks("saves_stages", count, {.environment = environment});
      expect_all_succeed(outcomes);
      auto found = tensors_of(folder.string() + "/" + to, "all");
      std::erase_if(found, [](const auto& one) { return one.first.starts_with("rng/"); });
      if (from.empty()) expected = found;
      if (from.empty()) copy = {tie_lines_of(outcomes, "copy: ").at(0)};
      for (const std::string& line : tie_lines_of(outcomes, "copy: ")) EXPECT_EQ(line, copy[0]) << count << " ranks, " << pipe;
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [name, tensor] : expected)
        EXPECT_TRUE(found.at(name).equal(tensor)) << name << " with " << count << " ranks, " << pipe << " stages";
      from = to;
    }
    EXPECT_TRUE(expected.contains("state/exp_avg/first.words"));
    EXPECT_FALSE(expected.contains("state/exp_avg/last.words"));
    EXPECT_TRUE(expected.contains("average/first.words"));
    EXPECT_FALSE(expected.contains("average/last.words"));
  }
}

// Between two boundaries: each stage's gradients so far are its own part of the sum.
RANK_BODY(continues_stages) {
  for (const int64_t stage : {0, 2, 3})
    for (const char* dtype : {"fp32", "bf16"}) {
      const std::string folder = variable("FOLDER") + "/" + std::to_string(stage) + dtype;
      Dict config = split_config(stage);
      if (dtype != std::string("fp32")) config[dtype] = Dict{{"enabled", true}};
      StagesRun straight(config);
      straight.train(0, 3);
      straight.engine->save_checkpoint(folder);
      straight.train(3, 5);
      straight.require_equal_copies(std::to_string(stage) + dtype);
      StagesRun resumed(config, /*seed=*/9);
      resumed.engine->load_checkpoint(folder);
      resumed.train(3, 5);
      const auto expected = straight.engine->fp32_parameters(), found = resumed.engine->fp32_parameters();
      for (size_t i = 0; i < expected.size(); ++i)
        expect(found.at(i).second.equal(expected[i].second), "resumed: " + expected[i].first);
    }
}
TEST(Ties, ResumesBetweenTwoBoundariesToTheBit) {
  const TemporaryFolder folder;
  for (const int count : {2, 4}) {
    const auto outcomes =
        run_ranks("continues_stages", count, {.environment = stages_of("2", folder.string() + std::to_string(count))});
    expect_all_succeed(outcomes);
    expect_equal_copies(outcomes, 6);
  }
}

// The masters are fp32: losses differ from the fp32 run's by what rounding to 8 bits does to them, 2^-8, and a few layers add up.
RANK_BODY(trains_stages_in_16_bits) {
  for (const char* dtype : {"fp32", "bf16"}) {
    Dict config = split_config(2);
    if (dtype != std::string("fp32")) config[dtype] = Dict{{"enabled", true}};
    StagesRun run(config);
    run.train(0, 8);
  }
}
TEST(Ties, TrainsIn16Bits) {
  const auto outcomes = run_ranks("trains_stages_in_16_bits", 4, {.environment = stages_of("2", "")});
  expect_all_succeed(outcomes);
  const auto all = tie_figures_of(outcomes);
  ASSERT_EQ(all.size(), 2u * 4 * 2);
  for (size_t i = 0; i < all.size() / 2; ++i) EXPECT_NEAR(all[i + all.size() / 2], all[i], 0.02 * all[i]) << i;
}

// A rule with a sum over each tensor gets that of the one tensor, once.
RANK_BODY(sums_of_stages) {
  for (const int64_t stage : {0, 2}) {
    Dict config = split_config(stage);
    config["optimizer"] = Dict{{"type", "Lamb"}, {"params", Dict{{"lr", 0.01}}}};
    StagesRun run(config);
    run.train(0, 8);
    run.require_equal_copies("stage" + std::to_string(stage));
  }
}
TEST(Ties, SumsOfATensorAreThoseOfTheOne) {
  const auto whole = run_ranks("sums_of_stages", 1, {.environment = stages_of("1", "")}),
             cut = run_ranks("sums_of_stages", 4, {.environment = stages_of("2", "")});
  expect_all_succeed(whole);
  expect_all_succeed(cut);
  expect_equal_copies(cut, 2);
  const auto expected = tie_figures_of(whole), found = tie_figures_of(cut);
  ASSERT_EQ(expected.size(), 2u * 4 * 2);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], kTieTolerance * std::abs(expected[i])) << i;
}

}  // namespace
