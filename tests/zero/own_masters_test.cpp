// bf16 parameters without fp32 masters ("bf16_master_weights_and_grads"): the same bits at every
// stage and on every tier, resumed, exported, and refused with a sentence where an optimizer does
// not take them.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "engine/impl.h"
#include "plugin/support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

Dict own_config(int64_t stage = 0, const std::string& tier = "none", const std::string& params_tier = "none",
                const std::string& optimizer = "AdamWBF16") {
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  const auto offload = [](const std::string& device) {
    Dict section{{"device", device}};
    if (device == "nvme") section["nvme_path"] = variable("FOLDER");
    return section;
  };
  if (tier != "none") zero["offload_optimizer"] = offload(tier);
  if (params_tier != "none") zero["offload_param"] = offload(params_tier);
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 1.0}});
  config["optimizer"] = Dict{{"type", optimizer}, {"params", Dict{{"lr", 1e-2}, {"weight_decay", 0.01}}}};
  config["bf16"] = Dict{{"enabled", true}, {"bf16_master_weights_and_grads", true}};
  return config;
}

auto own_engine(const Dict& config) { return gannet::initialize(make_uneven(), {.config = config}).engine; }

// The same samples on every rank.
at::Tensor own_trained(gannet::Engine<UnevenImpl>& engine, int64_t steps, int64_t first = 0) {
  for (int64_t step = first; step < first + steps; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
  return parameters_of(engine).to(torch::kFloat);
}

struct OwnPlace {
  int64_t stage;
  const char *states, *params;
};
const OwnPlace kOwnPlaces[] = {{1, "none", "none"}, {1, "cpu", "none"}, {2, "none", "none"}, {2, "nvme", "none"},
                               {3, "none", "none"}, {3, "cpu", "cpu"},  {3, "nvme", "nvme"}};

RANK_BODY(own_masters_everywhere) {
  auto world = gannet::test::world();
  const at::Tensor expected = own_trained(*own_engine(own_config()), 5);
  expect(expected.equal(expected.to(torch::kBFloat16).to(torch::kFloat)), "parameters are bf16 numbers");
  expect(own_trained(*own_engine(own_config()), 5).equal(expected), "repeatable");
  for (const OwnPlace& place : kOwnPlaces) {
    auto engine = own_engine(own_config(place.stage, place.states, place.params));
    const at::Tensor found = own_trained(*engine, 5);
    expect(found.equal(expected), "stage " + std::to_string(place.stage) + " on " + place.states + " and " + place.params +
                                      " is off by " + std::to_string(difference(found, expected)));
    for (const gannet::Range& range : engine->impl().store.ranges()) {
      expect(!range.has_master_copy() && range.master_dtype == at::kBFloat16, "no masters are kept");
      for (const auto& state : range.states) expect(state.dtype() == at::kBFloat16, "states are bf16");
    }
  }
  // Another seed rounds otherwise.
  Dict other = own_config();
  other["gannet"] = Dict{{"seed", 5}};
  expect(!own_trained(*own_engine(other), 5).equal(expected), "the run's seed counts");
  if (world->rank() == 0) torch::save(expected, variable("FOLDER") + "/of" + std::to_string(world->size()) + ".pt");
}

RANK_BODY(own_masters_resume) {
  auto world = gannet::test::world();
  const at::Tensor expected = own_trained(*own_engine(own_config()), 6);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 2}, {3, 0}}) {
    const std::string tag = "from" + std::to_string(from);
    auto before = own_engine(own_config(from));
    own_trained(*before, 3);
    before->save_checkpoint(variable("FOLDER"), {.tag = tag});
    before.reset();
    auto after = own_engine(own_config(to));
    after->load_checkpoint(variable("FOLDER"), {.tag = tag});
    expect(own_trained(*after, 3, 3).equal(expected), "stage " + std::to_string(from) + " to " + std::to_string(to));
  }
}

// Reading gradients and writing them back changes nothing, whatever the number of ranks.
RANK_BODY(own_gradients_by_name) {
  auto world = gannet::test::world();
  const auto run = [](bool touches) {
    auto engine = own_engine(own_config(2));
    for (int64_t step = 0; step < 3; ++step) {
      auto [x, y] = make_batch(step + engine->rank(), 4);
      engine->backward(engine->forward(x, y));
      if (touches) engine->for_each_gradient([](const std::string&, at::Tensor&) {});
      engine->step();
    }
    return parameters_of(*engine);
  };
  expect(run(true).equal(run(false)), "the same bits");
}

// It trains beside fp32 masters: the losses stay close for 60 steps.
RANK_BODY(own_masters_learn) {
  auto world = gannet::test::world();
  const auto last_loss = [](const Dict& config) {
    auto engine = own_engine(config);
    double last = 0;
    for (int64_t step = 0; step < 60; ++step) {
      auto [x, y] = make_batch(0, 16);
      const at::Tensor loss = engine->forward(x, y);
      last = loss.to(torch::kFloat).item<double>();
      engine->backward(loss);
      engine->step();
    }
    return last;
  };
  Dict masters = own_config(0, "none", "none", "AdamW");
  masters["bf16"] = Dict{{"enabled", true}};
  auto [x, y] = make_batch(0, 16);
  const double first = make_uneven()->forward(x, y).item<double>();
  const double with = last_loss(masters), without = last_loss(own_config());
  expect(with < 0.5 * first, "AdamW learns: " + std::to_string(first) + " to " + std::to_string(with));
  expect(without < with + 0.1 * first, "without masters: " + std::to_string(without) + ", with them " + std::to_string(with));
}

// A checkpoint of one kind in a run of the other: the error names the key.
RANK_BODY(own_masters_from_fp32_masters) {
  auto world = gannet::test::world();
  Dict masters = own_config(1, "none", "none", "AdamW");
  masters["bf16"] = Dict{{"enabled", true}};
  auto before = own_engine(masters);
  own_trained(*before, 3);
  before->save_checkpoint(variable("FOLDER"), {.tag = "masters"});
  before.reset();
  auto after = own_engine(own_config(1));
  const at::Tensor expected = parameters_of(*after);
  contains(message_of([&] { after->load_checkpoint(variable("FOLDER"), {.tag = "masters"}); }),
           "set bf16.bf16_master_weights_and_grads as in the run that saved it");
  expect(parameters_of(*after).equal(expected), "nothing was loaded");
  own_trained(*after, 2, 3);
}

RANK_BODY(own_masters_refusals) {
  auto world = gannet::test::world();
  contains(message_of([] { own_engine(own_config(0, "none", "none", "AdamW")); }),
           "no fp32 master, as \"bf16_master_weights_and_grads\" asks (AdamWBF16 takes it)");
  Dict masters = own_config();
  masters["bf16"] = Dict{{"enabled", true}};
  contains(message_of([&] { own_engine(masters); }), "AdamWBF16");
  Dict off = own_config();
  off["bf16"] = Dict{{"enabled", false}, {"bf16_master_weights_and_grads", true}};
  contains(message_of([&] { own_engine(off); }), "is true, and bf16 is not enabled");
  contains(message_of([] {
             auto model = make_uneven();
             Dict config = own_config();
             config.erase("optimizer");
             gannet::initialize(model,
                                {.config = config, .optimizer = std::make_shared<torch::optim::AdamW>(model->parameters())});
           }),
           "it would round small updates away");
  Dict averaged = own_config();
  averaged["gannet"] = Dict{{"ema", Dict{{"decay", 0.99}}}};
  contains(message_of([&] { own_engine(averaged); }), "an average in bf16 would lose nearly every step");
}

class OwnMasters : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};
// Equal gradients, averaged in twos, are each of them: the number of ranks does not change a bit.
TEST_F(OwnMasters, TrainTheSameAtEveryStageOnEveryTier) {
  for (const int ranks : {1, 2, 4}) run("own_masters_everywhere", ranks);
  at::Tensor one, two, four;
  torch::load(one, (folder_ / "of1.pt").string());
  torch::load(two, (folder_ / "of2.pt").string());
  torch::load(four, (folder_ / "of4.pt").string());
  EXPECT_TRUE(one.equal(two));
  EXPECT_TRUE(one.equal(four));
}
TEST_F(OwnMasters, ResumeAtAnotherStage) { run("own_masters_resume", 2); }
TEST_F(OwnMasters, GradientsReadByNameStay) { run("own_gradients_by_name", 3); }
TEST_F(OwnMasters, LearnBesideFp32Masters) { run("own_masters_learn", 1); }
TEST_F(OwnMasters, RefuseACheckpointOfFp32Masters) { run("own_masters_from_fp32_masters", 2); }
TEST_F(OwnMasters, AreRefusedWhereNothingTakesThem) { run("own_masters_refusals", 1); }

}  // namespace
