// Experts that do not divide among the ranks: some hold one more than others, which changes neither training nor checkpoints, nor
// the order in which ranks gather at stage 3.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mesh/expert_model.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;

constexpr double kUnevenTolerance = 4e-6;  // as in expert_ranks_test.cpp

using Environment = std::map<std::string, std::string>;
Environment uneven(const std::string& experts, const std::string& count, const std::string& folder) {
  return {{"EXPERT", experts}, {"EXPERTS", count}, {"FOLDER", folder}};
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], kUnevenTolerance * std::abs(expected[i])) << i;
}

// 3 experts on 2 ranks, 5 on 4: training, and a checkpoint that holds all of them.
RANK_BODY(trains_uneven_experts) {
  for (const auto& [stage, tier] : {std::pair{0, ""}, {1, "cpu"}, {2, ""}, {3, "cpu"}}) {
    MixtureRun run(split_config(stage, tier));
    run.train(0, 8);
    const std::string name = "stage" + std::to_string(stage) + "_" + variable("EXPERT");
    run.engine->save_fp32_model(variable("FOLDER"), name + ".safetensors");
    run.engine->save_checkpoint(variable("FOLDER") + "/" + name, {.tag = "all"});
  }
}
TEST(UnevenExperts, TrainAsTheWholeModel) {
  for (const auto& [experts, degree] : {std::pair{"3", "2"}, {"5", "4"}}) {
    const TemporaryFolder folder;
    const auto whole = run_ranks("trains_uneven_experts", 1, {.environment = uneven("1", experts, folder.string())}),
               cut = run_ranks("trains_uneven_experts", 4, {.environment = uneven(degree, experts, folder.string())});
    expect_all_succeed(whole);
    expect_all_succeed(cut);
    ASSERT_EQ(figures(whole).size(), 4u * 4 * 2);
    expect_close(figures(cut), figures(whole));
    for (const char* stage : {"0", "1", "2", "3"}) {
      const std::string name = folder.string() + "/stage" + stage + "_";
      const auto expected = gannet::load_safetensors(name + "1.safetensors"),
                 found = gannet::load_safetensors(name + degree + ".safetensors");
      const auto saved = tensors_of(name + degree, "all");
      for (const auto& [key, tensor] : expected) {
        ASSERT_EQ(found.at(key).sizes(), tensor.sizes()) << key;
        EXPECT_LT(difference(found.at(key), tensor), kUnevenTolerance) << key << ", stage " << stage;
        EXPECT_TRUE(found.at(key).equal(saved.at("parameter/" + key))) << key << ", stage " << stage;
      }
    }
  }
}

// Decisions of stage 3 by size: which parameters stay, which are prefetched, which make room. All
// ranks decide alike.
RANK_BODY(gathers_uneven_experts) {
  Dict zero{{"stage", 3}, {"reduce_bucket_size", 300}, {"stage3_param_persistence_threshold", 0}};
  if (!variable("PERSISTENT").empty()) zero["stage3_param_persistence_threshold"] = 1000;
  zero[variable("KEY")] = static_cast<int64_t>(std::stoll(variable("VALUE")));
  if (variable("TIER") == "nvme")
    zero["offload_param"] = Dict{{"device", "nvme"}, {"nvme_path", variable("FOLDER")}, {"max_in_cpu", 130}};
  Dict config = split_config(3);
  config["zero_optimization"] = zero;
  MixtureRun run(config);
  run.train(0, 8);
}
TEST(UnevenExperts, DoNotChangeTheOrderOfGathers) {
  const TemporaryFolder folder;
  // up has 240 or 120 elements, down 80 or 40.
  for (const auto& [key, value, tier] : {std::tuple{"stage3_param_persistence_threshold", "150", ""},
                                         {"stage3_model_persistence_threshold", "200", ""},
                                         {"stage3_prefetch_bucket_size", "200", ""},
                                         {"stage3_max_live_parameters", "250", ""},
                                         {"stage3_max_reuse_distance", "200", ""},
                                         {"stage3_param_persistence_threshold", "0", "nvme"}}) {
    std::vector<std::vector<double>> all;
    for (const int count : {1, 4}) {
      auto environment = uneven(count == 1 ? "1" : "2", "3", folder.string());
      environment.insert({{"KEY", key}, {"VALUE", value}, {"TIER", tier}});
      if (key == std::string("stage3_model_persistence_threshold")) environment["PERSISTENT"] = "1";
      const auto outcomes = run_ranks("gathers_uneven_experts", count, {.environment = environment});
      SCOPED_TRACE(std::string(key) + " " + tier);
      expect_all_succeed(outcomes);
      all.push_back(figures(outcomes));
    }
    expect_close(all[1], all[0]);
  }
}

RANK_BODY(saves_uneven_experts) {
  const std::string folder = variable("FOLDER");
  MixtureRun run(split_config(std::atoi(variable("STAGE").c_str())), variable("LOAD").empty() ? 1 : 7);
  if (variable("LOAD").empty())
    run.train(0, 4);
  else
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
  run.engine->save_checkpoint(folder + "/" + variable("SAVE"), {.tag = "all"});
}
TEST(UnevenExperts, ACheckpointLoadsAtEveryDegreeAndBack) {
  for (const char* stage : {"0", "2", "3"}) {
    const TemporaryFolder folder;
    std::map<std::string, at::Tensor> expected;
    std::string from;
    std::vector<std::pair<int, std::string>> degrees = {{4, "2"}, {1, "1"}, {4, "2"}};
    if (stage == std::string("3") || ranks::is_full()) degrees = {{4, "2"}, {1, "1"}, {4, "4"}, {2, "2"}, {2, "1"}, {4, "2"}};
    for (const auto& [count, degree] : degrees) {
      const std::string to = std::to_string(count) + degree + from;
      auto environment = uneven(degree, "5", folder.string());
      environment.insert({{"STAGE", stage}, {"LOAD", from}, {"SAVE", to}});
      expect_all_succeed(run_ranks("saves_uneven_experts", count, {.environment = environment}));
      const auto found = tensors_of(folder.string() + "/" + to, "all");
      if (from.empty()) expected = found;
      for (const auto& [name, tensor] : expected)
        if (!name.starts_with("rng/"))
          EXPECT_TRUE(found.at(name).equal(tensor)) << name << " with " << count << " ranks, expert " << degree;
      from = to;
    }
  }
}

}  // namespace
