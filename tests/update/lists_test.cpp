// Features of ABI 2.3 for optimizers: several pieces in one call, and the step's numbers next to
// the pieces. Each result is, bit for bit, that of the same rule without them.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "engine/impl.h"
#include "update/piece_list.h"
#include "zero/passes.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

Dict lists_config(const std::string& optimizer, const Place& place, const Dict& more = {}, const Dict& params = {}) {
  Dict counting = params;
  counting["counts"] = true;
  Dict config = passes_config(optimizer, counting, place, more);
  config["plugins"] = Dict{{"path", gannet::List{Value(LISTS_PLUGIN)}}};
  config["gradient_clipping"] = 0.5;
  return config;
}

struct Ran {
  at::Tensor masters, momenta, used;
  double longest = 0, single = 0;  // pieces of the longest list; calls for single pieces
};

// The first layer joins after two of `steps`; the last one is not updated in one of them.
Ran ran(const Dict& config, int64_t steps = 5) {
  auto model = make_uneven();
  for (auto& parameter : model->first->parameters()) parameter.requires_grad_(false);
  auto engine = gannet::initialize(model, {.config = config}).engine;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == 2)
      for (auto& parameter : model->first->parameters()) parameter.requires_grad_(true);
    model->last->bias.requires_grad_(step != 3);
    auto [x, y] = batch_of(step, 0, engine->rank());
    engine->backward(engine->forward(x, y));
    expect(engine->step().applied, "a step is taken");
  }
  Ran found{parameters_of(*engine), {}, used_by(*engine)};
  std::vector<at::Tensor> momenta;
  for (const auto& name : engine->parameter_names()) momenta.push_back(engine->full_optimizer_state(name, "momentum").flatten());
  found.momenta = torch::cat(momenta);
  const auto& states = engine->impl().groups[0].group_states;
  found.longest = states[2].item<double>();
  found.single = states[3].item<double>();
  bool is_mixed = false;  // tensors of one range have different numbers of updates
  for (const gannet::Range& range : engine->impl().store.ranges())
    for (const auto& parameter : range.parameters) is_mixed = is_mixed || parameter.lag != range.parameters[0].lag;
  expect(is_mixed, "a parameter of a range has missed an update");
  return found;
}

void expect_same(const Ran& found, const Ran& expected, const std::string& where) {
  expect(found.masters.equal(expected.masters),
         where + ": masters off by " + std::to_string(difference(found.masters, expected.masters)));
  expect(found.momenta.equal(expected.momenta), where + ": momenta");
  expect(found.used.equal(expected.used), where + ": what the model reads");
}

const char* const kRules[] = {"Listed", "OnDevice"};

RANK_BODY(lists_everywhere) {
  auto world = gannet::test::world();
  for (const bool bf16 : {false, true})
    for (const Place& place : kPlaces) {
      const Dict more = bf16 ? Dict{{"bf16", Dict{{"enabled", true}}}} : Dict{};
      const Ran plain = ran(lists_config("Plain", place, more));
      expect(plain.longest == 0 && plain.single > 0, "without the bit there are no lists");
      for (const char* rule : kRules) {
        const std::string where = std::string(rule) + (bf16 ? ", bf16, " : ", ") + text_of(place);
        const Ran listed = ran(lists_config(rule, place, more));
        expect_same(listed, plain, where);
        const std::string counts =
            ": the longest list has " + std::to_string(listed.longest) + ", single calls " + std::to_string(listed.single);
        if (place.states == "nvme")
          expect(listed.longest == 0 && listed.single == plain.single, where + counts);
        else
          expect(listed.longest > 0 && listed.single == 0, where + counts);
        // A list ends with its shard where that is sent, so that it goes out before the next one is updated.
        const bool sends = (place.stage == 1 || place.stage == 2) && world->size() > 1;
        if (place.states != "nvme") expect(sends ? listed.longest == 1 : listed.longest > 1, where + counts);
      }
    }
}

// Canaries around each array of each piece, and the same bits: lines are added up over a list.
RANK_BODY(lists_watched) {
  auto world = gannet::test::world();
  for (const Place& place : {Place{0, "none"}, Place{2, "none"}, Place{1, "cpu"}}) {
    const Dict debug{{"gannet", Dict{{"debug_plugins", true}}}};
    const Ran plain = ran(lists_config("Plain", place));
    for (const char* rule : kRules) expect_same(ran(lists_config(rule, place, debug)), plain, "watched, " + text_of(place));
    for (const auto& [what, message] : {std::pair{"gradient", "wrote to the gradient, which this call only reads: tensor '"},
                                        {"norms", "wrote to the state 'norms', which this call only reads: that of tensor '"},
                                        {"workspace", "wrote to byte 1 after the end of the workspace"},
                                        {"padding", "wrote to byte 1 after the end of the parameter"}}) {
      const std::string found = message_of([&, what = what] { ran(lists_config("Careless", place, debug, {{"what", what}})); });
      contains(found, message);
      contains(found, "in update_many of step 1");
    }
  }
}

// A device's group: in lists on the device, one by one where it is updated on the host.
RANK_BODY(lists_on_a_device) {
  auto world = gannet::test::world();
  const Dict fake{{"accelerator", Dict{{"type", "fake"}, {"params", Dict{{"delay_us", 200}}}}}};
  for (const Place& place :
       {Place{0, "none"}, Place{1, "none"}, Place{2, "none"}, Place{3, "none"}, Place{2, "cpu"}, Place{3, "cpu"}}) {
    const Ran plain = ran(lists_config("Plain", place, fake));
    for (const char* rule : kRules) {
      const std::string where = std::string(rule) + " on the fake device, " + text_of(place);
      const Ran listed = ran(lists_config(rule, place, fake));
      expect_same(listed, plain, where);
      expect((listed.longest > 0) == (place.states == "none"), where + ": lists");
      expect((listed.single > 0) == (place.states == "cpu"), where + ": single calls");
    }
  }
}

// The moving average also works with a list's pieces, on the host and on a device that the host
// updates for.
RANK_BODY(lists_average) {
  auto world = gannet::test::world();
  const Dict own{{"gannet", Dict{{"ema", Dict{{"decay", 0.9}}}}}};
  Dict fake = own;
  fake["accelerator"] = Dict{{"type", "fake"}, {"params", Dict{{"delay_us", 200}}}};
  for (const Dict& more : {own, fake})
    for (const Place& place : {Place{0, "none"}, Place{2, "none"}, Place{2, "cpu"}, Place{3, "none"}, Place{3, "cpu"}}) {
      at::Tensor averages[2];
      for (const bool listed : {false, true}) {
        auto engine = engine_of(lists_config(listed ? "Listed" : "Plain", place, more));
        at::Tensor by_hand = parameters_of(*engine);
        for (int64_t step = 0; step < 4; ++step) {
          auto [x, y] = batch_of(step, 0, engine->rank());
          engine->backward(engine->forward(x, y));
          engine->step();
          by_hand.add_((parameters_of(*engine) - by_hand).mul_(1 - 0.9));
        }
        engine->eval();
        averages[listed] = parameters_of(*engine);
        expect(averages[listed].equal(by_hand.to(averages[listed].device())),
               text_of(place) + ": off by " + std::to_string(difference(averages[listed], by_hand)));
        engine->train();
      }
      expect(averages[0].equal(averages[1]), text_of(place));
    }
}

// Hyperparameters that change, and two groups with different ones.
RANK_BODY(numbers_follow) {
  auto world = gannet::test::world();
  const auto trained = [&](const std::string& rule) {
    const Dict schedule{{"type", "WarmupLR"}, {"params", Dict{{"warmup_num_steps", 4}, {"warmup_max_lr", 0.05}}}};
    Dict config = lists_config(rule, {1, "none"}, {{"scheduler", schedule}});
    const Dict biases{{"match", "*.bias"}, {"lr", 0.3}, {"damping", 0.1}};
    config["optimizer"] = Dict{{"type", rule}, {"params", Dict{}}, {"param_groups", gannet::List{Value(biases)}}};
    auto engine = engine_of(config);
    for (int64_t step = 0; step < 6; ++step) {
      auto [x, y] = batch_of(step, 0, engine->rank());
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    return parameters_of(*engine);
  };
  const at::Tensor plain = trained("Plain");
  expect(trained("OnDevice").equal(plain), "numbers are the group's and the step's");
}

std::vector<gannet::Piece> pieces_in_shards(const std::vector<size_t>& shards) {
  std::vector<gannet::Piece> pieces;
  for (const size_t shard : shards) pieces.push_back({{}, {0, 0, 10}, shard, 0, nullptr, 0, {}});
  return pieces;
}

TEST(Lists, EndAtTheirBounds) {
  using testing::ElementsAre;
  const auto sizes_of = [](const std::vector<gannet::Piece>& pieces, uint64_t workspace, bool by_shard) {
    std::vector<size_t> sizes;
    for (const auto& list : gannet::lists_of(pieces, [&](const gannet::Piece&) { return workspace; }, by_shard)) {
      EXPECT_EQ(list.workspace_bytes, workspace * (list.end - list.begin));
      sizes.push_back(list.end - list.begin);
    }
    return sizes;
  };
  const auto many = pieces_in_shards(std::vector<size_t>(2500));
  EXPECT_THAT(sizes_of(many, 0, false), ElementsAre(1024, 1024, 452));
  EXPECT_THAT(sizes_of(pieces_in_shards({0, 0, 0, 0, 0}), uint64_t{100} << 20, false), ElementsAre(2, 2, 1));
  EXPECT_THAT(sizes_of(pieces_in_shards({0, 0}), uint64_t{1} << 30, false), ElementsAre(1, 1));  // one may need more
  EXPECT_THAT(sizes_of(pieces_in_shards({0, 0, 1, 3, 3, 3}), 64, true), ElementsAre(2, 1, 3));
  EXPECT_THAT(sizes_of({}, 64, true), ElementsAre());
}

using ListsContract = PassesTest;
TEST_F(ListsContract, ListsTrainAsSinglePiecesOnOneRank) { run("lists_everywhere", 1); }
TEST_F(ListsContract, ListsTrainAsSinglePiecesOnTwoRanks) { run("lists_everywhere", 2); }
TEST_F(ListsContract, WatchedListsTrainTheSameAndWritesAreNamed) { run("lists_watched", 1); }
TEST_F(ListsContract, ListsTrainAsSinglePiecesOnADevice) { run("lists_on_a_device", 1); }
TEST_F(ListsContract, TheMovingAverageGoesWithTheirPieces) { run("lists_average", 2); }
TEST_F(ListsContract, DeviceNumbersAreTheGroupsAndTheSteps) { run("numbers_follow", 2); }

}  // namespace
