// A pipeline trains as one rank does: at every ZeRO stage, with every tier, and its checkpoints are
// those of the whole model.
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect_all_succeed;
using ranks::run_ranks;

std::map<std::string, std::string> variables(const std::string& pipe, const TemporaryFolder& folder,
                                             std::map<std::string, std::string> more = {}) {
  more.insert({{"PIPE", pipe}, {"FOLDER", folder.string()}});
  return more;
}

const std::vector<std::string> kPlacements = {"0", "1", "2", "3", "2cpu", "3cpu", "3nvme"};

RANK_BODY(trains_untied) {
  const std::string dtype = variable("DTYPE").empty() ? "fp32" : variable("DTYPE");
  for (const std::string& zero : dtype == "fp32" ? kPlacements : std::vector<std::string>{"1", "3"}) {
    PipeRun run(pipe_config(zero, 0, dtype), {.recomputed_layers = std::stoll("0" + variable("RECOMPUTE"))});
    run.train(0, 4);
    run.engine->save_checkpoint(variable("FOLDER") + "/" + variable("NAME") + zero, {.tag = "all"});
  }
}

// Without a norm over several tensors and ranks, and without a weight that two stages use, nothing
// is added up in another order.
TEST(Pipeline, UntiedStagesHaveTheBitsOfOneRank) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, int count, const std::string& dtype, const std::string& schedule,
                       const std::string& recompute) {
    const auto outcomes = run_ranks(
        "trains_untied", count,
        {.environment = variables(std::to_string(count), folder,
                                  {{"DTYPE", dtype}, {"SCHEDULE", schedule}, {"RECOMPUTE", recompute}, {"NAME", name}})});
    expect_all_succeed(outcomes);
    return outcomes;
  };
  for (const std::string dtype : {"fp32", "bf16"}) {
    const auto whole = figures_in(run("one" + dtype, 1, dtype, "1f1b", "0"));
    ASSERT_EQ(whole.size(), (dtype == "fp32" ? kPlacements.size() : 2) * 4 * 2);
    for (const auto& [count, schedule, recompute] : {std::tuple{2, "1f1b", "0"}, {4, "gpipe", "0"}, {3, "1f1b", "2"}}) {
      if (dtype == "bf16" && count != 3) continue;
      const std::string name = std::to_string(count) + schedule + recompute + dtype;
      const auto found = figures_in(run(name, count, dtype, schedule, recompute));
      ASSERT_EQ(found.size(), whole.size()) << name;
      for (size_t i = 0; i < whole.size(); i += 2) {
        EXPECT_DOUBLE_EQ(found[i], whole[i]) << name << ", loss " << i / 2;
        EXPECT_NEAR(found[i + 1], whole[i + 1], 1e-6 * whole[i + 1]) << name << ", norm " << i / 2;
      }
      for (const std::string& zero : dtype == "fp32" ? kPlacements : std::vector<std::string>{"1", "3"}) {
        const auto expected = tensors_of(folder.string() + "/one" + dtype + zero, "all"),
                   saved = tensors_of(folder.string() + "/" + name + zero, "all");
        EXPECT_EQ(saved.size(), expected.size());
        for (const auto& [key, tensor] : expected) {
          ASSERT_TRUE(saved.contains(key)) << key;
          EXPECT_TRUE(saved.at(key).equal(tensor)) << key << ", " << name << ", ZeRO " << zero;
        }
      }
    }
  }
}

RANK_BODY(trains_tied) {
  for (const std::string& zero : kPlacements) {
    PipeRun run(pipe_config(zero, 0.5), {.net = {.dropout = 0, .is_tied = true}});
    run.train(0, 4);
    run.engine->save_checkpoint(variable("FOLDER") + "/" + variable("NAME") + zero, {.tag = "all"});
  }
}
TEST(Pipeline, TiedAndClippedStagesOverSeveralRanksAlongDataAreWithinRounding) {
  const TemporaryFolder folder;
  const auto run = [&](int count, const std::string& pipe) {
    const auto outcomes =
        run_ranks("trains_tied", count, {.environment = variables(pipe, folder, {{"NAME", pipe + std::to_string(count)}})});
    expect_all_succeed(outcomes);
    return figures_in(outcomes);
  };
  const auto whole = run(1, "1");
  ASSERT_EQ(whole.size(), kPlacements.size() * 4 * 2);
  for (const auto& [count, pipe] : {std::pair{2, "2"}, {4, "2"}}) {
    const auto found = run(count, pipe);
    ASSERT_EQ(found.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(found[i], whole[i], 1e-5 * std::abs(whole[i])) << i;
    for (const std::string& zero : kPlacements) {
      const auto expected = tensors_of(folder.string() + "/11" + zero, "all"),
                 saved = tensors_of(folder.string() + "/" + pipe + std::to_string(count) + zero, "all");
      EXPECT_EQ(saved.size(), expected.size());
      for (const auto& [key, tensor] : expected)
        if (key.starts_with("parameter/")) EXPECT_LT(difference(saved.at(key), tensor), 2e-5) << key << ", ZeRO " << zero;
    }
  }
}

// A checkpoint of any number of stages, ZeRO stage and tier loads at another one, with the states.
RANK_BODY(continues) {
  const std::string folder = variable("FOLDER");
  PipeRun run(pipe_config(variable("ZERO"), 0.5),
              {.net = {.dropout = 0, .is_tied = true, .seed = variable("LOAD").empty() ? 1u : 7u}});
  int64_t first = 0;
  if (!variable("LOAD").empty()) {
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
    first = run.engine->global_steps();
  }
  run.train(first, 2);
  run.engine->save_checkpoint(folder + "/" + variable("SAVE"));
}
TEST(Pipeline, ACheckpointContinuesAtOtherStagesRanksAndTiers) {
  const TemporaryFolder folder;
  std::vector<double> figures;
  std::string from;
  struct Leg {
    int count;
    const char* pipe;
    const char* zero;
  };
  for (const Leg& leg : {Leg{2, "2", "1"}, {1, "1", "0"}, {4, "2", "3"}, {2, "1", "2cpu"}, {4, "4", "2"}}) {
    const std::string to = std::to_string(leg.count) + leg.pipe + leg.zero;
    const auto outcomes = run_ranks(
        "continues", leg.count, {.environment = variables(leg.pipe, folder, {{"ZERO", leg.zero}, {"LOAD", from}, {"SAVE", to}})});
    expect_all_succeed(outcomes);
    for (const double figure : figures_in(outcomes)) figures.push_back(figure);
    from = to;
  }
  std::vector<double> whole;
  from.clear();
  for (int leg = 0; leg < 5; ++leg) {
    const std::string to = "whole" + std::to_string(leg);
    const auto outcomes =
        run_ranks("continues", 1, {.environment = variables("1", folder, {{"ZERO", "0"}, {"LOAD", from}, {"SAVE", to}})});
    expect_all_succeed(outcomes);
    for (const double figure : figures_in(outcomes)) whole.push_back(figure);
    from = to;
  }
  ASSERT_EQ(figures.size(), 5u * 2 * 2);
  ASSERT_EQ(whole.size(), figures.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(figures[i], whole[i], 2e-5 * whole[i]) << i;
}

}  // namespace
