// The estimate of the activations that are kept, against a walk through a step's events and against
// LibTorch's allocator.
#include "activation/kept.h"

#include <gannet/config.h>
#include <gannet/estimate.h>
#include <gmock/gmock.h>

#include <map>
#include <random>

#include "activation/recomputing.h"
#include "activation/selective.h"
#include "counted.h"
#include "cut_models.h"
#include "estimate/activation_ladder.h"
#include "estimate/measured_activations.h"

namespace gannet::test {
namespace {

using activation::ActivationMeasurement;
using activation::kept_at_most;
using activation::LayerGroup;
using testing::HasSubstr;

// Every tensor by name, put in and taken out in the order of forward and backward: {the most that is there at once, what is there
// in the first region's backward, or the first layer's}.
std::pair<int64_t, int64_t> walked(const ActivationMeasurement& kept, const std::vector<LayerGroup>& groups, bool on_tier) {
  std::map<std::string, int64_t> here;
  int64_t most = 0, sum = 0;
  const auto look = [&] {
    sum = 0;
    for (const auto& [name, bytes] : here) sum += bytes;
    most = std::max(most, sum);
  };
  const auto put_layers = [&](size_t g) {
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) {
      here["input " + std::to_string(i)] = kept.layers[i].input_bytes;
      here["saved " + std::to_string(i)] = kept.layers[i].saved_bytes;
    }
  };
  const auto input = [&](size_t g) { return "input " + std::to_string(groups[g].begin); };
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].is_region) {
      put_layers(g);
      continue;
    }
    if (on_tier && g > 0 && groups[g - 1].is_region) here.erase(input(g - 1));
    here[input(g)] = kept.layers[groups[g].begin].input_bytes;
  }
  here["rest"] = kept.rest_bytes;
  here["rest's gradient"] = kept.rest_largest_bytes;
  look();
  here.erase("rest");
  here.erase("rest's gradient");
  for (size_t g = groups.size(); g-- > 0;) {
    put_layers(g);
    for (size_t i = groups[g].begin; i < groups[g].end; ++i)
      here["gradient"] = std::max(here["gradient"], kept.layers[i].largest_bytes);
    if (on_tier && g > 0 && groups[g - 1].is_region) here[input(g - 1)] = kept.layers[groups[g - 1].begin].input_bytes;
    look();
    for (size_t i = groups[g].begin; i < groups[g].end; ++i) {
      here.erase("input " + std::to_string(i));
      here.erase("saved " + std::to_string(i));
    }
    here.erase("gradient");
  }
  if (!groups[0].is_region) {
    const auto& first = kept.layers[0];
    sum = first.input_bytes + first.saved_bytes + first.largest_bytes;
  }
  return {most, sum};
}

TEST(Kept, IsTheMostThatAWalkThroughAStepFinds) {
  std::mt19937 draw(7);
  for (int round = 0; round < 300; ++round) {
    ActivationMeasurement kept;
    const size_t layers = 1 + draw() % 9;
    std::vector<bool> marks;
    for (size_t i = 0; i < layers; ++i) {
      kept.layers.push_back({std::to_string(i), static_cast<int64_t>(draw() % 50), static_cast<int64_t>(draw() % 200), 1.0,
                             static_cast<int64_t>(draw() % 99)});
      marks.push_back(draw() % 2 == 0);
    }
    kept.rest_bytes = draw() % 300;
    kept.rest_largest_bytes = draw() % 100;
    const auto expect_walked = [&](const std::vector<LayerGroup>& groups, bool on_tier) {
      const activation::ActivationPeak most = kept_at_most(kept, groups, on_tier);
      EXPECT_EQ(std::pair(most.bytes, most.last_bytes), walked(kept, groups, on_tier)) << round;
    };
    for (const auto& groups :
         {activation::groups_of(layers, 1), activation::groups_of(layers, 3), activation::even_groups(layers, 2)})
      for (const bool on_tier : {false, true}) expect_walked(groups, on_tier);
    expect_walked(activation::single_regions(marks), false);
  }
}

TEST(Kept, OnATierLeavesTwoLayersThatFollowEachOther) {
  const ActivationMeasurement kept{.layers = {{"a", 1, 10, 1}, {"b", 2, 40, 1}, {"c", 3, 20, 1}},
                                   .rest_bytes = 7,
                                   .rest_largest_bytes = 4,
                                   .selective_bytes = {}};
  config::ActivationCheckpointing settings = config::Settings().activation_checkpointing;
  settings.keep = "nvme";
  EXPECT_EQ(kept_at_most(kept, settings, /*tier_is_memory=*/true).bytes, 2 + 40 + 3 + 20);
  EXPECT_EQ(kept_at_most(kept, settings, true).tier_bytes, 11 + 42 + 23 + 7);
  EXPECT_EQ(kept_at_most(kept, settings, true).last_bytes, 1 + 10);
  settings.keep = "cpu";
  EXPECT_EQ(kept_at_most(kept, settings, true).bytes, 11 + 42 + 23 + 7 + 4) << "host memory is the device's own";
  EXPECT_EQ(kept_at_most(kept, settings, true).tier_bytes, 0);
  EXPECT_EQ(kept_at_most(kept, settings, false).bytes, 2 + 40 + 3 + 20);
}

class KeptMemory : public CountedMemory {
 protected:
  // Live after a forward, its graph held.
  static double held_after(const std::function<at::Tensor()>& forward) {
    const int64_t before = Counting::live;
    const at::Tensor loss = forward();
    return static_cast<double>(Counting::live - before);
  }
};

TEST_F(KeptMemory, IsWithinATenthOfWhatLibTorchsAllocatorGaveOut) {
  const auto model = make_layered(6, 64, 4, 0.0);
  const at::Tensor ids = torch::randint(50, {4, 64}), targets = torch::randint(50, {4, 64});
  const auto forward = [&] { return model->forward(ids, targets); };
  forward();  // what the first call leaves behind
  const std::vector<std::string> operators = {"gelu", "layer_norm"};
  const ActivationMeasurement kept = measure_activations(*model, forward, operators);
  ASSERT_EQ(kept.layers.size(), 8u);

  const double plain = held_after(forward);
  config::ActivationCheckpointing settings = config::Settings().activation_checkpointing;
  const auto estimated = [&] { return static_cast<double>(kept_at_most(kept, settings, true).bytes); };
  EXPECT_NEAR(estimated(), plain, 0.1 * plain);

  const activation::CheapOperators chosen(operators);
  const double selective = held_after([&] {
    const activation::SelectiveRecomputation here(chosen);
    return forward();
  });
  settings.recompute = operators;
  EXPECT_NEAR(estimated(), selective, 0.1 * selective);
  EXPECT_LT(selective, 0.8 * plain);

  const auto each = std::make_shared<activation::RecomputationPlanner>(
      activation::RecomputeSettings{.is_on = true, .memory_limit = {}, .interval = 1, .number_checkpoints = {}});
  each->own(model->parameters());
  const double regions = held_after(forward);
  int64_t inputs = kept.rest_bytes;
  for (const auto& layer : kept.layers) inputs += layer.input_bytes;
  EXPECT_NEAR(static_cast<double>(inputs), regions, 0.1 * regions);
  EXPECT_LT(regions, 0.4 * plain);
}

TEST(Kept, AModelWithoutLayersIsMeasuredAsAWhole) {
  torch::nn::Linear linear(8, 16);
  const ActivationMeasurement kept =
      measure_activations(*linear, [&] { return linear->forward(torch::randn({4, 8})).sin().sum(); }, {});
  EXPECT_TRUE(kept.layers.empty());
  EXPECT_EQ(kept.rest_bytes, 4 * 8 * 4 + 4 * 16 * 4);  // the input, for the weight's gradient, and the product, for the sine's
  EXPECT_EQ(kept.rest_largest_bytes, 4 * 16 * 4);
}

TEST(Kept, TheFormulaIsThatOfMeasuredBlocks) {
  const ActivationMeasurement kept = kept_by_formula({.layers = 4, .width = 64, .heads = 4, .tokens = 128}, 4);
  const int64_t one = 128 * 64 * 4;
  EXPECT_EQ(kept.layers.size(), 4u);
  EXPECT_EQ(kept.layers[0].input_bytes + kept.layers[0].saved_bytes, 16 * one + 128 * 4 * 4);
  const auto each = activation::groups_of(4, 1);
  EXPECT_EQ(kept_at_most(kept, each, false).bytes, 4 * one + 15 * one + 128 * 4 * 4 + 4 * one);
  EXPECT_EQ(kept_at_most(kept, each, true).tier_bytes, 4 * one);
}

TEST(Kept, AnEstimateShowsTheLayersAndTheRungsOfTheLadder) {
  const auto model = make_layered(4, 64, 4, 0.0);
  const auto loss = [&](int64_t samples) {
    EXPECT_EQ(samples, 3);
    return model->forward(torch::zeros({samples, 64}, torch::kLong), torch::zeros({samples, 64}, torch::kLong));
  };
  Dict json{{"train_micro_batch_size_per_gpu", 3},
            {"accelerator", Dict{{"type", "cpu"}}},
            {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 0.1}}}}}};
  const std::string plain = estimate(*model, Config(json), {.ranks = 1, .forward = loss});
  for (const char* part : {"Activations of one micro-batch are in it", "block0 to block3 (4), each", "outside of the layers",
                           "nothing recomputed", "set gannet.activation_checkpointing.interval to 1"})
    EXPECT_THAT(plain, HasSubstr(part));
  EXPECT_THAT(estimate(*model, Config(json), {.ranks = 1}), HasSubstr("Not counted: activations"));
  EXPECT_THROW(estimate(*model, Config(json), {.ranks = 1, .forward = [](int64_t) { return torch::ones({}); }}), Error);
}

}  // namespace
}  // namespace gannet::test
