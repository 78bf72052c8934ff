// Every optimizer of ours trains at each stage and on each tier as at stage 0: bitwise, except for
// Lamb, Adafactor, LARS and Prodigy, which add their sums in another order.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "plugin/support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

struct Type {
  const char* name;
  Dict params;
  double bound = 0;
};
std::vector<Type> types() {
  return {{"SGD", Dict{{"lr", 0.05}, {"momentum", 0.9}}},
          {"SAM", Dict{{"lr", 0.05}, {"momentum", 0.9}}},
          {"Lion", Dict{{"lr", 1e-3}, {"weight_decay", 0.1}}},
          {"Adagrad", Dict{{"lr", 0.01}}},
          {"RMSprop", Dict{{"lr", 1e-3}, {"momentum", 0.9}, {"centered", true}}},
          {"NAdam", Dict{{"lr", 1e-3}, {"weight_decay", 0.1}}},
          {"Lamb", Dict{{"lr", 0.01}, {"weight_decay", 0.1}}, 1e-6},
          {"Muon", Dict{{"lr", 0.01}, {"adam_lr", 1e-3}}},
          {"Adafactor", Dict{{"lr", 0.01}, {"beta1", 0.9}}, 1e-6},
          {"AdamW8bit", Dict{{"lr", 1e-3}}},
          {"AdamWScheduleFree", Dict{{"lr", 1e-2}, {"warmup_steps", 3}}},
          {"Adan", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}}},
          {"AdaBelief", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}}},
          {"LARS", Dict{{"lr", 0.05}, {"weight_decay", 0.1}, {"trust_coefficient", 0.1}}, 1e-6},
          // The first steps decide what the estimate becomes: of 1e-3, beside which the rounding of a parameter is small.
          {"Prodigy", Dict{{"d0", 1e-3}, {"weight_decay", 0.1}}, 1e-6},
          // k 3: there are moves within the four steps, and the run that resumes after two has its move later.
          {"LookaheadAdamW", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}, {"k", 3}}},
          {"LookaheadSGD", Dict{{"lr", 0.05}, {"k", 3}}}};
}

Dict family_config(const Type& type, int64_t stage, const std::string& tier, bool bf16 = false) {
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  if (tier != "none") {
    Dict offload{{"device", tier}};
    if (tier == "nvme") offload["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = offload;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 1.0}});
  if (bf16) config["bf16"] = Dict{{"enabled", true}};
  config["optimizer"] = Dict{{"type", type.name}, {"params", type.params}};
  return config;
}

RANK_BODY(every_optimizer_everywhere) {
  auto world = gannet::test::world();
  for (const auto& type : types()) {
    for (const bool bf16 : {false, true}) {
      const auto run = [&](int64_t stage, const std::string& tier) {
        auto engine = gannet::initialize(make_uneven(), {.config = family_config(type, stage, tier, bf16)}).engine;
        train(*engine, 4);
        return parameters_of(*engine);
      };
      const at::Tensor expected = run(0, "none");
      expect(torch::equal(run(0, "none"), expected), std::string(type.name) + " is repeatable");
      for (const auto& [stage, tier] : {std::pair<int64_t, std::string>{1, "none"}, {2, "cpu"}, {3, "none"}, {3, "nvme"}}) {
        const at::Tensor found = run(stage, tier);
        const double off = difference(found, expected);
        // A rounding to bf16 that falls to the other side is one of its last bits.
        const double bound = type.bound > 0 && bf16 ? 1e-3 : type.bound;
        expect(type.bound == 0 ? torch::equal(found, expected) : off < bound, std::string(type.name) + (bf16 ? " in bf16" : "") +
                                                                                  " at stage " + std::to_string(stage) + " on " +
                                                                                  tier + " is off by " + std::to_string(off));
      }
    }
  }
}

// eval() puts the averaged weights into the model for any placement of the masters, and train()
// restores the trained ones, bit for bit.
void evaluate_everywhere(const Type& type) {
  for (const bool bf16 : {false, true}) {
    at::Tensor trained, evaluated, predicted;
    for (const auto& [stage, tier] :
         {std::pair<int64_t, std::string>{0, "none"}, {1, "none"}, {2, "cpu"}, {3, "none"}, {3, "nvme"}}) {
      const std::string where =
          std::string(": ") + type.name + " at stage " + std::to_string(stage) + " on " + tier + (bf16 ? " in bf16" : "");
      auto engine = gannet::initialize(make_uneven(), {.config = family_config(type, stage, tier, bf16)}).engine;
      train(*engine, 3);
      const at::Tensor before = parameters_of(*engine);
      engine->eval();
      const at::Tensor during = parameters_of(*engine);
      auto [x, y] = make_batch(100, 4);
      at::Tensor loss;
      {
        torch::NoGradGuard no_grad;
        loss = engine->forward(x, y);
      }
      engine->train();
      expect(torch::equal(parameters_of(*engine), before), "train() puts back what was trained" + where);
      expect(!torch::equal(during, before), "the evaluated weights are other ones" + where);
      train(*engine, 2, 3);
      if (!trained.defined()) {
        trained = parameters_of(*engine);
        evaluated = during;
        predicted = loss;
      }
      expect(torch::equal(during, evaluated), "the evaluated weights are those of stage 0" + where);
      expect(torch::equal(loss, predicted), "forward reads them" + where);
      expect(torch::equal(parameters_of(*engine), trained), "training continues as without eval()" + where);
    }
  }
}
RANK_BODY(evaluation_everywhere) {
  auto world = gannet::test::world();
  evaluate_everywhere({"AdamWScheduleFree", Dict{{"lr", 1e-2}}});
  // k 2: the third step is no move, so that the trained weights have left the slow ones.
  evaluate_everywhere({"LookaheadAdamW", Dict{{"lr", 1e-2}, {"k", 2}}});
  evaluate_everywhere({"LookaheadSGD", Dict{{"lr", 0.05}, {"k", 2}}});
}

// Saved and resumed in mid-run, at another stage: as without a stop.
RANK_BODY(every_optimizer_resumes) {
  auto world = gannet::test::world();
  for (const auto& type : types()) {
    const auto engine_of = [&](int64_t stage) {
      return gannet::initialize(make_uneven(), {.config = family_config(type, stage, "none")}).engine;
    };
    auto straight = engine_of(2);
    train(*straight, 4);
    const at::Tensor expected = parameters_of(*straight);
    straight.reset();
    auto before = engine_of(2);
    train(*before, 2);
    before->save_checkpoint(variable("FOLDER"), {.tag = type.name});
    before.reset();
    auto after = engine_of(3);
    after->load_checkpoint(variable("FOLDER"), {.tag = type.name});
    train(*after, 2, 2);
    const double off = difference(parameters_of(*after), expected);
    expect(off <= type.bound, std::string(type.name) + " is off by " + std::to_string(off) + " after it resumed");
  }
}

// The same samples on every rank: the mean gradient does not depend on their number.
RANK_BODY(every_optimizer_on_some_ranks) {
  auto world = gannet::test::world();
  for (const auto& type : types()) {
    auto engine = gannet::initialize(make_uneven(), {.config = family_config(type, 2, "none")}).engine;
    for (int64_t step = 0; step < 3; ++step) {
      auto [x, y] = make_batch(step, 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    const at::Tensor parameters = parameters_of(*engine);
    if (world->rank() == 0) torch::save(parameters, variable("FOLDER") + "/" + type.name + std::to_string(world->size()) + ".pt");
  }
}

class EveryOptimizer : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

TEST_F(EveryOptimizer, TrainsTheSameAtEveryStageOnOneRank) { run("every_optimizer_everywhere", 1); }
TEST_F(EveryOptimizer, TrainsTheSameAtEveryStageOnTwoRanks) { run("every_optimizer_everywhere", 2); }
TEST_F(EveryOptimizer, EvaluatesWithItsOwnWeightsAtEveryStageOnOneRank) { run("evaluation_everywhere", 1); }
TEST_F(EveryOptimizer, EvaluatesWithItsOwnWeightsAtEveryStageOnTwoRanks) { run("evaluation_everywhere", 2); }
TEST_F(EveryOptimizer, ResumesAtAnotherStage) { run("every_optimizer_resumes", 2); }
// Four equal gradients, averaged in twos, are each of them: only sums over ranks are added in another order.
TEST_F(EveryOptimizer, TrainsOnFourRanksAsOnOne) {
  run("every_optimizer_on_some_ranks", 1);
  run("every_optimizer_on_some_ranks", 4);
  for (const auto& type : types()) {
    at::Tensor of[2];
    torch::load(of[0], (folder_ / (std::string(type.name) + "1.pt")).string());
    torch::load(of[1], (folder_ / (std::string(type.name) + "4.pt")).string());
    EXPECT_LE(difference(of[1], of[0]), type.bound) << type.name;
  }
}

}  // namespace
