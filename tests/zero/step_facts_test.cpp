// Features of ABI 2.4 for optimizers: the step's loss, the length of the run, metrics, low-rank
// factors.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>

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

Dict facts_config(const std::string& optimizer, int64_t stage = 0, const std::string& tier = "none", const Dict& own = {},
                  const Dict& more = {}) {
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  if (tier != "none") {
    Dict offload{{"device", tier}};
    if (tier == "nvme") offload["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = offload;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config["optimizer"] = Dict{{"type", optimizer}, {"params", Dict{}}};
  config["plugins"] = Dict{{"path", gannet::List{Value(FACTS_PLUGIN)}}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  if (!own.empty()) config["gannet"] = own;
  return config;
}

auto engine_with(const Dict& config) { return gannet::initialize(make_uneven(), {.config = config}).engine; }

double scalar_of(gannet::EngineBase& engine, size_t state) { return engine.impl().groups[0].group_states[state].item<double>(); }

// The loss is the mean over micro-batches and ranks, whatever the stage, the tier and whether anything is monitored.
RANK_BODY(loss_is_the_mean) {
  auto world = gannet::test::world();
  for (const bool is_monitored : {false, true})
    for (const auto& [stage, tier] : {std::pair<int64_t, std::string>{0, "none"}, {1, "cpu"}, {2, "none"}, {3, "nvme"}}) {
      const std::string where = " at stage " + std::to_string(stage) + " on " + tier;
      Dict own{{"total_steps", 40}};
      if (is_monitored) own["metrics"] = Dict{{"path", variable("FOLDER") + "/monitored.jsonl"}};
      auto engine = engine_with(facts_config("Polyak", stage, tier, own, {{"gradient_accumulation_steps", 2}}));
      for (int64_t step = 0; step < 3; ++step) {
        double mine = 0;
        for (int64_t micro = 0; micro < 2; ++micro) {
          auto [x, y] = make_batch(10 * step + 2 * micro + world->rank(), 4);
          const at::Tensor loss = engine->forward(x, y);
          mine += loss.item<double>() / 2;
          engine->backward(loss);
          engine->step();
        }
        engine->impl().host_group->all_reduce(&mine, 1);
        const double mean = mine / world->size(), seen = scalar_of(*engine, 0);
        expect(std::abs(seen - mean) < 1e-9 * mean,
               "the loss is " + std::to_string(mean) + ", and seen is " + std::to_string(seen) + where);
        expect(scalar_of(*engine, 1) == 40, "the length of the run" + where);
      }
    }
}

// The same samples on every rank.
at::Tensor trained(gannet::Engine<UnevenImpl>& engine, int64_t steps, int64_t first = 0) {
  for (int64_t step = first; step < first + steps; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
  return parameters_of(engine);
}

// What a plain program computes, with the same formula.
RANK_BODY(polyak_as_by_hand) {
  auto world = gannet::test::world();
  auto engine = engine_with(facts_config("Polyak", 2, "none", {{"total_steps", 10}}));
  auto model = make_uneven();
  trained(*engine, 4);
  for (int64_t step = 0; step < 4; ++step) {
    auto [x, y] = make_batch(step, 4);
    const at::Tensor loss = model->forward(x, y);
    model->zero_grad();
    loss.backward();
    torch::NoGradGuard no_grad;
    double squares = 0;
    for (const auto& parameter : model->parameters())
      squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
    const double rate = 0.1 * (1 - static_cast<double>(step) / 10) * loss.item<double>() / (squares + 1);
    for (auto& parameter : model->parameters()) parameter.sub_(parameter.grad(), rate);
  }
  std::vector<at::Tensor> parts;
  for (const auto& parameter : model->parameters()) parts.push_back(parameter.detach().flatten());
  const double off = difference(parameters_of(*engine), torch::cat(parts));
  expect(off < 1e-6, "off by " + std::to_string(off));
}

// A metric of the optimizer is in the metrics file, beside the loss.
RANK_BODY(metrics_are_written) {
  auto world = gannet::test::world();
  const std::string path = variable("FOLDER") + "/metrics" + std::to_string(world->size()) + ".jsonl";
  {
    auto engine = engine_with(facts_config("Polyak", 1, "none", {{"metrics", Dict{{"path", path}}}}));
    trained(*engine, 3);
  }
  if (world->rank() != 0) return;
  std::ifstream file(path);
  int found = 0;
  for (std::string line; std::getline(file, line);) found += line.find("\"optimizer/rate\"") != std::string::npos;
  expect(found == 3, std::to_string(found) + " of 3 steps have the metric");
}

// Swapped to in the middle of a run, the optimizer gets the loss from its first step on.
RANK_BODY(loss_after_a_swap) {
  auto world = gannet::test::world();
  Dict config = facts_config("Polyak");
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{}}};
  auto engine = engine_with(config);
  trained(*engine, 2);
  engine->swap_optimizer("Polyak", Dict{});
  trained(*engine, 1, 2);
  expect(std::isfinite(scalar_of(*engine, 0)) && scalar_of(*engine, 0) > 0, "the loss is seen");
}

const std::pair<int64_t, const char*> kPlaces[] = {{0, "none"}, {1, "cpu"}, {2, "none"}, {2, "nvme"}, {3, "none"}, {3, "cpu"}};

RANK_BODY(factors_everywhere) {
  auto world = gannet::test::world();
  const at::Tensor expected = trained(*engine_with(facts_config("Projected")), 4);
  for (const auto& [stage, tier] : kPlaces) {
    auto engine = engine_with(facts_config("Projected", stage, tier));
    expect(trained(*engine, 4).equal(expected), "stage " + std::to_string(stage) + " on " + tier);
    // 37x8, 300x37 and 4x300 of width 3: rows and columns.
    double numel = 0;
    for (const auto& of_state : engine->impl().groups[0].squares)
      for (const at::Tensor& factor : of_state) numel += factor.defined() ? static_cast<double>(factor.numel()) : 0;
    double all = numel;
    engine->impl().host_group->all_reduce(&all, 1);
    const double whole = 3 * (37 + 8 + 300 + 37 + 4 + 300);
    expect(stage == 0 ? numel == whole : all == whole, "factors of every matrix, once, at stage " + std::to_string(stage));
  }
  expect(trained(*engine_with(facts_config("Projected", 2, "none", {{"debug_plugins", true}})), 4).equal(expected), "watched");
}

RANK_BODY(factors_resume) {
  auto world = gannet::test::world();
  const at::Tensor expected = trained(*engine_with(facts_config("Projected")), 6);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 0}, {2, 0}, {3, 1}, {0, 3}}) {
    const std::string tag = "from" + std::to_string(from);
    auto before = engine_with(facts_config("Projected", from));
    trained(*before, 3);
    before->save_checkpoint(variable("FOLDER"), {.tag = tag});
    before.reset();
    auto after = engine_with(facts_config("Projected", to));
    after->load_checkpoint(variable("FOLDER"), {.tag = tag});
    expect(trained(*after, 3, 3).equal(expected), "stage " + std::to_string(from) + " to " + std::to_string(to));
  }
}

class StepFacts : public testing::TestWithParam<int> {
 protected:
  void run(const std::string& body) {
    ranks::expect_all_succeed(run_ranks(body, GetParam(), {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};
TEST_P(StepFacts, TheLossIsTheMeanOverMicroBatchesAndRanks) { run("loss_is_the_mean"); }
TEST_P(StepFacts, APolyakStepIsThatOfAPlainProgram) { run("polyak_as_by_hand"); }
TEST_P(StepFacts, MetricsOfAnOptimizerAreInTheMetricsFile) { run("metrics_are_written"); }
TEST_P(StepFacts, AnOptimizerThatIsSwappedInGetsTheLoss) { run("loss_after_a_swap"); }
TEST_P(StepFacts, FactorsTrainTheSameEverywhere) { run("factors_everywhere"); }
TEST_P(StepFacts, FactorsResumeAtAnotherStage) { run("factors_resume"); }
INSTANTIATE_TEST_SUITE_P(Ranks, StepFacts, testing::Values(1, 2));

}  // namespace
