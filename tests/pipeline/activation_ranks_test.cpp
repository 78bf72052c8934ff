// What activation checkpointing keeps, where and when it recomputes: it changes no bit of a pipeline,
// by schedules of one backward and of two.
#include <gtest/gtest.h>

#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::List;
using gannet::Value;
using ranks::expect_all_succeed;
using ranks::run_ranks;

struct Setting {
  Dict section;  // activation_checkpointing of `gannet`
  bool is_cpu_checkpointing = false;
  int64_t recomputed_layers = 0;
};

// With activations of more than the 64 KiB from which a tensor is kept elsewhere.
RANK_BODY(trains_with_activations_elsewhere) {
  const std::vector<Setting> settings{{},
                                      {Dict{{"recompute", List{"gelu", "layer_norm"}}}},
                                      {Dict{{"keep", "cpu"}}},
                                      {Dict{{"keep", "nvme"}, {"nvme_path", variable("FOLDER")}}},
                                      {Dict{}, true, 1},
                                      {Dict{{"device", "nvme"}, {"nvme_path", variable("FOLDER")}}, true, 2}};
  for (const auto& [section, is_cpu_checkpointing, recomputed_layers] : settings) {
    Dict config = pipe_config("1");
    Dict own = config["gannet"].is_dict() ? config["gannet"].as_dict() : Dict();
    own["activation_checkpointing"] = section;
    config["gannet"] = own;
    if (is_cpu_checkpointing) config["activation_checkpointing"] = Dict{{"cpu_checkpointing", true}};
    PipeRun run(config, {.net = {.blocks = 3, .width = 1024}, .recomputed_layers = recomputed_layers});
    run.train(0, 2);
  }
}
TEST(PipelineActivations, OnATierOrRecomputedChangeNoBit) {
  const TemporaryFolder folder;
  const auto run = [&](int count, const std::string& schedule) {
    const auto outcomes =
        run_ranks("trains_with_activations_elsewhere", count,
                  {.environment = {{"PIPE", std::to_string(count)}, {"FOLDER", folder.string()}, {"SCHEDULE", schedule}}});
    expect_all_succeed(outcomes);
    return figures_in(outcomes);
  };
  const std::vector<double> whole = run(1, "1f1b");
  ASSERT_EQ(whole.size(), 6u * 2 * 2);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_DOUBLE_EQ(whole[i], whole[i % 4]) << i;
  for (const std::string schedule : {"1f1b", "zb-h1", "zb-v"}) {
    const std::vector<double> found = run(2, schedule);
    ASSERT_EQ(found.size(), whole.size()) << schedule;
    for (size_t i = 0; i < whole.size(); i += 2) {
      EXPECT_DOUBLE_EQ(found[i], whole[i]) << schedule << ", loss " << i / 2;
      EXPECT_NEAR(found[i + 1], whole[i + 1], 1e-6 * whole[i + 1]) << schedule << ", norm " << i / 2;
    }
  }
}

}  // namespace
