// An exported model on several ranks: from_pretrained reads each rank's shards, and stages 0 to 3 train alike.
#include "comm/ranks.h"

#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "exported/archive.h"

namespace {

using gannet::Dict;
using gannet::ExportedModule;
using ranks::expect;
using ranks::run_ranks;

Dict config_of(int64_t stage) {
  return {
      {"train_micro_batch_size_per_gpu", 2},
      {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}},
      {"zero_optimization", Dict{{"stage", stage}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}}};
}

gannet::NamedBatch batch_of(int step, uint32_t rank) {
  torch::manual_seed(static_cast<uint64_t>(step) * 10 + rank);
  const at::Tensor ids = torch::randint(1, 40, {2, 6 + step}, at::kLong);
  return {{"input_ids", ids}, {"labels", ids}};
}

// The masters after three steps, and the losses.
std::map<std::string, at::Tensor> trained(int64_t stage, uint32_t rank) {
  const Dict config = config_of(stage);
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"), {.config = config});
  auto engine = gannet::initialize(model, {.config = config}).engine;
  std::map<std::string, at::Tensor> found;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = engine->forward(batch_of(step, rank));
    engine->backward(loss);
    engine->step();
    found["loss" + std::to_string(step)] = loss.detach().clone();
  }
  for (const auto& [name, values] : engine->fp32_parameters()) found[name] = values.clone();
  return found;
}

RANK_BODY(stages) {
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const auto first = trained(0, world->rank());
  ranks::same(first.size(), size_t{31}, "tensors");
  for (const int64_t stage : {1, 2, 3}) {
    const auto found = trained(stage, world->rank());
    for (const auto& [name, values] : first)
      expect(at::equal(found.at(name), values), name + " at stage " + std::to_string(stage));
  }
}
TEST(ExportedOnRanks, TrainsAlikeAtEveryStage) { ranks::expect_all_succeed(run_ranks("stages", 2)); }

}  // namespace
