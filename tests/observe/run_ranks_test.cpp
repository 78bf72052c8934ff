// Reports of a run of two ranks, and their cost.
#include <gmock/gmock.h>

#include <tuple>

#include "support.h"

namespace gannet::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

RANK_BODY(tells_of_both) {
  auto world = init_distributed({.timeout_seconds = 60});
  auto engine = initialize(make_net(), {.config = with_metrics(config_with({{"gradient_accumulation_steps", 2}}))}).engine;
  for (const double loss : train(*engine, 3)) {
    const double mean = engine->mean(loss);
    if (engine->rank() == 0) std::ofstream(at("losses"), std::ios::app) << static_cast<float>(mean) << '\n';
  }
}

TEST_F(Runs, LossAndCountsAreThoseOfAllRanksWhateverEachOfThemCounts) {
  ranks::expect_all_succeed(ranks::run_ranks("tells_of_both", 2, options()));
  const auto steps = lines_of(at("metrics.jsonl"), "step");
  ASSERT_THAT(steps, SizeIs(3));
  std::ifstream losses(at("losses"));
  for (size_t i = 0; i < 3; ++i) {
    float loss = 0;
    losses >> loss;
    EXPECT_NEAR(steps[i]["loss"].get<double>(), loss, 1e-4 * loss);
    EXPECT_EQ(steps[i]["counts"]["tokens"], 2 * (10 + 20));
    EXPECT_EQ(steps[i]["values"], (Json{{"accuracy", 0.5}})) << "rank 0's";
    EXPECT_EQ(steps[i]["samples"], 16 * (i + 1));
  }
  EXPECT_FALSE(steps[0]["counts"].contains("images"));
  EXPECT_EQ(steps[1]["counts"]["images"], 6);
  EXPECT_EQ(steps[2]["counts"]["images"], 6);
  EXPECT_THAT(lines_of(at("metrics.jsonl"), "run"), SizeIs(1));
}

// Parameters and the collectives of three steps, with everything on and with nothing on.
RANK_BODY(trains_both_ways) {
  auto world = init_distributed({.timeout_seconds = 60});
  const auto run = [&](bool told) {
    Dict config = config_with({{"zero_optimization", Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}});
    if (told) {
      config = with_metrics(config);
      config["gannet"].as_dict()["trace"] = Dict{{"path", at("trace.json")}, {"first_step", 1}, {"last_step", 2}};
      config["csv_monitor"] = Dict{{"enabled", true}, {"output_path", at("csv")}};
      config["tensorboard"] = Dict{{"enabled", true}, {"output_path", at("tb")}};
    }
    auto engine = initialize(make_net(), {.config = config}).engine;
    const auto counters = [&] { return engine->impl().comm->comm().counters(); };
    const auto before = counters();
    for (int64_t step = 0; step < 3; ++step) {
      auto [x, y] = make_batch(step * 2 + engine->rank(), 4);
      engine->backward(engine->forward(x, y));
      engine->count("tokens", 7);
      engine->step();
    }
    const auto after = counters();
    std::vector<at::Tensor> parts;
    for (const auto& [name, master] : engine->fp32_parameters()) parts.push_back(master.flatten().clone());
    return std::make_tuple(torch::cat(parts), after.calls - before.calls, after.bytes_sent - before.bytes_sent);
  };
  const auto [plain, calls, bytes] = run(false);
  const auto [told, more_calls, more_bytes] = run(true);
  ranks::expect(torch::equal(plain, told), "the same parameters, bit for bit");
  ranks::same(more_calls - calls, uint64_t{3 + 3}, "collectives: one a step, and the new name's exchange once");
  ranks::expect(more_bytes - bytes < 600, "they are small");
}

TEST_F(Runs, MonitorsChangeNoParameterAndCostOneSmallCollectiveAStep) {
  ranks::expect_all_succeed(ranks::run_ranks("trains_both_ways", 2, options()));
  for (const char* name : {"trace.json", "trace.rank1.json"}) {
    std::vector<std::string> names, kinds;
    for (const Json& event : Json::parse(read_file(at(name)))) {
      names.push_back(event["name"]);
      if (event.contains("cat")) kinds.push_back(event["cat"]);
    }
    for (const char* phase : {"forward", "backward", "gather", "update", "first.weight", "bucket of first.weight to second.bias"})
      EXPECT_THAT(names, Contains(phase)) << name;
    EXPECT_THAT(kinds, testing::AllOf(Contains("gather"), Contains("reduce")));
  }
  for (const Json& step : lines_of(at("metrics.jsonl"), "step")) EXPECT_THAT(step["phases"], Contains(testing::_)) << step;
}

RANK_BODY(differs_in_its_monitor) {
  auto world = init_distributed({.timeout_seconds = 60});
  auto engine = initialize(make_net(), {.config = world->rank() == 0 ? with_metrics(config_with({})) : config_with({})}).engine;
}

TEST_F(Runs, ARankWhoseConfigHasNoMonitorIsToldBeforeTheFirstStep) {
  for (const auto& outcome : ranks::run_ranks("differs_in_its_monitor", 2, options())) {
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.output, HasSubstr("with a monitor"));
  }
}

}  // namespace
}  // namespace gannet::test
