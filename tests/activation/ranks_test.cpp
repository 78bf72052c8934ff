// Regions under an engine: at every ZeRO stage, on one and two ranks, the run is the one without regions, bit for bit.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "activation/trained_blocks.h"
#include "engine/impl.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

constexpr TrainedBlocks kBlocksRun{.blocks = 5, .width = 32, .samples = 2, .words = 10, .steps = 3};

void expect_plain(const Dict& config, const std::string& what) {
  const at::Tensor plain = kBlocksRun.trained(config);
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kGroups})
    expect(at::equal(kBlocksRun.trained(config, recompute), plain), what);
}

RANK_BODY(regions_at_every_stage) {
  world();
  for (const int64_t stage : {0, 1, 2, 3})
    for (const std::string dtype : {"fp32", "bf16"})
      expect_plain(stage3(stage, {}, dtype), "stage " + std::to_string(stage) + ", " + dtype);
  expect_plain(stage3(3, Dict{{"offload_optimizer", Dict{{"device", "cpu"}}}, {"offload_param", Dict{{"device", "cpu"}}}}),
               "stage 3, offloaded");
}

// Those of one block at a time, in the recomputation too.
RANK_BODY(parameters_that_are_here) {
  world();
  const auto peak = [&](Recompute recompute) {
    auto engine = gannet::initialize(make_transformer(recompute, 8, 32, 4, 0.1),
                                     {.config = stage3(3, Dict{{"stage3_prefetch_bucket_size", 0}})})
                      .engine;
    auto& residency = *engine->impl().store.residency();
    for (int64_t step = 0; step < 2; ++step) {
      auto [ids, targets] = words_of(step, 2, 10);
      engine->backward(engine->forward(ids, targets));
      engine->step();
    }
    return residency.peak_bytes();
  };
  const int64_t plain = peak(Recompute::kNothing);
  expect(plain > 0, "something is gathered");
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kGroups})
    expect(peak(recompute) <= plain, std::to_string(peak(recompute)) + " bytes where " + std::to_string(plain) + " are without");
}

// A guard's collectives work on memory of their own, which is gone when the recomputation ends.
struct GuardedImpl : NetImpl {
  explicit GuardedImpl(bool has_region) : has_region(has_region) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto guarded = [this](const at::Tensor& x) {
      const gannet::zero::GatheredParameters guard(*engine, {second->weight});
      return torch::tanh(first(x)) / (1 + second->weight.detach().norm());
    };
    return torch::mse_loss(second(has_region ? gannet::checkpointing::checkpoint(guarded, x) : guarded(x)), y);
  }
  bool has_region;
  gannet::EngineBase* engine = nullptr;
};

RANK_BODY(guards_within_a_region) {
  world();
  for (const int64_t stage : {0, 3}) {
    const auto run = [&](bool has_region) {
      torch::manual_seed(1);
      auto model = std::make_shared<GuardedImpl>(has_region);
      auto engine = gannet::initialize(model, {.config = stage3(stage)}).engine;
      model->engine = engine.get();
      train(*engine, 4);
      return parameters_of(*engine);
    };
    const at::Tensor plain = run(false);
    expect(at::equal(run(true), plain), "stage " + std::to_string(stage));
  }
}

// A region that writes a parameter, as an embedding with max_norm does, writes it once.
struct ShrinkingImpl : NetImpl {
  explicit ShrinkingImpl(bool has_region) : has_region(has_region) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const auto f = [this](const at::Tensor& x) {
      {
        const at::NoGradGuard no_grad;
        first->weight.mul_(0.9);
        first->weight.narrow(0, 0, 1).add_(0.01);
      }
      return torch::tanh(first(x));
    };
    return torch::mse_loss(second(has_region ? gannet::checkpointing::checkpoint(f, x) : f(x)), y);
  }
  bool has_region;
};

RANK_BODY(regions_that_write_parameters) {
  world();
  const auto run = [&](int64_t stage, bool has_region) {
    torch::manual_seed(1);
    auto engine = gannet::initialize(std::make_shared<ShrinkingImpl>(has_region), {.config = stage3(stage)}).engine;
    train(*engine, 3);
    return parameters_of(*engine);
  };
  for (const int64_t stage : {0, 1, 2}) expect(at::equal(run(stage, true), run(stage, false)), "stage " + std::to_string(stage));
  try {
    run(3, true);
  } catch (const gannet::Error& error) {
    expect(std::string(error.what()).find("writes into parameter") != std::string::npos, error.what());
    return;
  }
  expect(false, "stage 3 refuses it");
}

TEST(RegionsUnderAnEngine, WriteParametersOnce) { ranks::expect_all_succeed(run_ranks("regions_that_write_parameters", 2)); }
TEST(RegionsUnderAnEngine, MayHaveGuards) {
  for (const int count : {1, 2}) ranks::expect_all_succeed(run_ranks("guards_within_a_region", count));
}
TEST(RegionsUnderAnEngine, TrainAsWithoutThemOnOneRank) { ranks::expect_all_succeed(run_ranks("regions_at_every_stage", 1)); }
TEST(RegionsUnderAnEngine, TrainAsWithoutThemOnTwoRanks) { ranks::expect_all_succeed(run_ranks("regions_at_every_stage", 2)); }
TEST(RegionsUnderAnEngine, GatherNoMoreParametersAtATime) { ranks::expect_all_succeed(run_ranks("parameters_that_are_here", 2)); }

}  // namespace
