// How layers are divided among stages. The expected numbers are those of DeepSpeed 0.19.6
// (partition_uniform, partition_balanced).
#include "pipeline/partition.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace gannet::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Partition, UniformIsDeepSpeeds) {
  EXPECT_THAT(partition_uniform(10, 3), ElementsAre(0, 4, 7, 10));
  EXPECT_THAT(partition_uniform(8, 4), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(partition_uniform(5, 10), ElementsAre(0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5));
  EXPECT_THAT(partition_uniform(3, 1), ElementsAre(0, 3));
}

TEST(Partition, BalancedIsDeepSpeedsToTheLastTie) {
  EXPECT_THAT(partition_balanced({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 8), ElementsAre(0, 2, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(partition_balanced({1, 2, 3, 4, 5}, 2), ElementsAre(0, 3, 5));
  EXPECT_THAT(partition_balanced({0, 1, 2, 3, 3, 3}, 4), ElementsAre(0, 3, 4, 5, 6));
  EXPECT_THAT(partition_balanced({0, 7, 0, 7, 7, 7, 0}, 2), ElementsAre(0, 4, 7));
  EXPECT_THAT(partition_balanced({5, 1, 1, 1, 1, 1}, 3), ElementsAre(0, 1, 4, 6));
  EXPECT_THAT(partition_balanced({100, 1, 1, 1, 1, 100}, 4), ElementsAre(0, 1, 3, 5, 6));
  EXPECT_THAT(partition_balanced({0, 1, 1, 1, 1, 0}, 2), ElementsAre(0, 3, 6));
}

std::string refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Partition, ByTypeCountsTheLayersThatTheRegexFinds) {
  const std::vector<LayerFacts> layers = {{"words", "Embedding", 100}, {"h.0", "Block", 10}, {"h.1", "Block", 10},
                                          {"h.2", "Block", 10},        {"h.3", "Block", 10}, {"head", "Linear", 100}};
  EXPECT_THAT(partition(layers, 2, "type:bloc", "here"), ElementsAre(0, 3, 6));
  EXPECT_THAT(partition(layers, 2, "Type:^BLOCK$|linear", "here"), ElementsAre(0, 4, 6));
  EXPECT_THAT(partition(layers, 4, "parameters", "here"), ElementsAre(0, 1, 3, 5, 6));
  EXPECT_THAT(partition(layers, 4, "Uniform", "here"), ElementsAre(0, 2, 4, 5, 6));
  EXPECT_THAT(refused([&] { partition(layers, 2, "type:conv", "ds_config.json:3"); }),
              testing::AllOf(HasSubstr("ds_config.json:3: 'type:conv' finds no layer"), HasSubstr("Embedding, Block, Linear")));
  EXPECT_THAT(refused([&] { partition(layers, 2, "type:(", "here"); }), HasSubstr("no regular expression"));
  EXPECT_THAT(refused([&] { partition(layers, 2, "profile", "here"); }), HasSubstr("no way to divide layers named 'profile'"));
  EXPECT_THAT(refused([&] { partition(layers, 8, "uniform", "here"); }),
              HasSubstr("the model has 6 layers, and the pipeline 8 stages: stages 6 to 7 would be empty"));
}

// All divisions, tried one by one.
double least_bottleneck(const std::vector<double>& weights, size_t stages, size_t begin = 0) {
  if (stages == 0) return begin == weights.size() ? 0 : INFINITY;
  double least = INFINITY, sum = 0;
  for (size_t end = begin + 1; end <= weights.size(); ++end) {
    sum += weights[end - 1];
    least = std::min(least, std::max(sum, least_bottleneck(weights, stages - 1, end)));
  }
  return least;
}

TEST(Partition, TheBottleneckIsTheLeastThereIs) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(1 + random() % 9);
    for (double& weight : weights) weight = static_cast<double>(random() % 100);
    const size_t stages = 1 + random() % weights.size();
    const auto cost = [&](size_t, size_t begin, size_t end) {
      return std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(begin),
                             weights.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
    };
    const std::vector<size_t> bounds = partition_bottleneck(weights.size(), stages, cost);
    ASSERT_EQ(bounds.size(), stages + 1);
    double largest = 0;
    for (size_t stage = 0; stage < stages; ++stage) {
      ASSERT_LT(bounds[stage], bounds[stage + 1]) << "no stage is empty";
      largest = std::max(largest, cost(stage, bounds[stage], bounds[stage + 1]));
    }
    EXPECT_EQ(largest, least_bottleneck(weights, stages));
  }
  // The first stage keeps twice the activations of the second one.
  const auto uneven = [](size_t stage, size_t begin, size_t end) { return static_cast<double>((2 - stage) * (end - begin)); };
  EXPECT_THAT(partition_bottleneck(6, 2, uneven), ElementsAre(0, 2, 6));
}

TEST(Partition, BoundsOfTheProgramAreChecked) {
  check_bounds({0, 2, 6}, 6, 2);
  EXPECT_THAT(refused([] { check_bounds({0, 6}, 6, 2); }), HasSubstr("2 stages take 3 numbers"));
  EXPECT_THAT(refused([] { check_bounds({0, 2, 5}, 6, 2); }), HasSubstr("must lead from 0 to 6"));
  EXPECT_THAT(refused([] { check_bounds({0, 0, 6}, 6, 2); }), HasSubstr("stage 0 would be empty"));
}

}  // namespace
}  // namespace gannet::pipeline
