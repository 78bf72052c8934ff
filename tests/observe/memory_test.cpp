// The memory of a step by kind, in the metrics file of a real run.
#include <gannet/layers.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "activation/blocks.h"
#include "support.h"

namespace gannet::test {
namespace {

constexpr int64_t kWidth = 64, kLayers = 8, kRows = 512;

std::shared_ptr<torch::nn::SequentialImpl> make_deep() {
  torch::manual_seed(1);
  torch::nn::Sequential model;
  for (int64_t i = 0; i < kLayers; ++i) {
    model->push_back(torch::nn::Linear(kWidth, kWidth));
    model->push_back(torch::nn::Tanh());
  }
  return model.ptr();
}

// The last of three steps.
Json memory_of(const std::string& name, const Dict& more) {
  Dict config = config_with({{"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 0.01}}}}}});
  config["gannet"] = Dict{{"metrics", Dict{{"path", at(name)}}}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  auto engine = initialize(make_deep(), {.config = config}).engine;
  const at::Tensor x = torch::randn({kRows, kWidth});
  for (int step = 0; step < 3; ++step) {
    engine->backward(engine->forward(x).square().mean());
    engine->step();
  }
  engine.reset();
  return lines_of(at(name), "step").back()["memory"];
}

TEST_F(Runs, MemoryByKindIsThatOfTheModelAndOfItsActivations) {
  const Json plain = memory_of("plain.jsonl", {});
  const int64_t parameters = kLayers * (kWidth * kWidth + kWidth) * 4;
  // Flat buffers end on multiples of 64 elements, at most for each tensor.
  const int64_t padding = 2 * kLayers * 64 * 4;
  EXPECT_GE(plain["parameters"], parameters);
  EXPECT_LE(plain["parameters"], parameters + padding);
  EXPECT_GE(plain["states"], 2 * parameters);
  EXPECT_LE(plain["states"], 2 * (parameters + padding));
  EXPECT_GE(plain["gradients"], parameters);
  EXPECT_LE(plain["gradients"], parameters + padding);
  // A tanh keeps its result, which is the next layer's input too: kLayers of them, and a few of backward's own.
  const int64_t one = kRows * kWidth * 4;
  EXPECT_GE(plain["activations"], kLayers * one);
  EXPECT_LE(plain["activations"], (kLayers + 6) * one);
}

TEST_F(Runs, MemoryByKindShowsWhatOneLineOfConfigToRecomputeSpares) {
  const Json plain = memory_of("plain.jsonl", {});
  const Json groups = memory_of("groups.jsonl", Dict{{"activation_checkpointing", Dict{{"number_checkpoints", 2}}}});
  for (const char* kind : {"parameters", "states", "gradients"}) EXPECT_EQ(plain[kind], groups[kind]) << kind;
  EXPECT_LT(groups["activations"].get<int64_t>(), plain["activations"].get<int64_t>() - 2 * kRows * kWidth * 4);
}

// 12 blocks of width 256, 4 x 256 words, dropout also in attention, AdamW in fp32: all allocations
// of LibTorch's allocator in a step except for gradients, which exist from the start under an
// engine. Parameters, states and buckets do not come from it. The peak is at the start of backward:
// 12 inputs of 1 MiB, the 27.6 MiB that one block saves, and gradients of its activations.
TEST_F(Runs, RecomputedBlocksUnderAnEngineKeepTheirInputsAlone) {
  const auto activations = [](const std::string& name, Recompute recompute) {
    Dict config = config_with({{"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}}}});
    config["gannet"] = Dict{{"metrics", Dict{{"path", at(name)}}}};
    auto engine = initialize(make_transformer(recompute, 12, 256, 4, 0.1), {.config = config}).engine;
    const auto [ids, targets] = words_of(0, 4, 256);
    for (int step = 0; step < 2; ++step) {
      engine->backward(engine->forward(ids, targets));
      engine->step();
    }
    engine.reset();
    return lines_of(at(name), "step").back()["memory"]["activations"].get<double>() / (1 << 20);
  };
  const double plain = activations("plain.jsonl", Recompute::kNothing), blocks = activations("blocks.jsonl", Recompute::kBlocks),
               groups = activations("groups.jsonl", Recompute::kGroups);
  RecordProperty("plain", std::to_string(plain));
  RecordProperty("blocks", std::to_string(blocks));
  RecordProperty("groups", std::to_string(groups));
  EXPECT_GT(plain, 300);
  EXPECT_LE(blocks, 50);
  EXPECT_LE(groups, 46);
}

}  // namespace
}  // namespace gannet::test
