// Recomputation by operator under an engine, switched on by its config: at every ZeRO stage, on one and two ranks, the run is the
// plain one, bit for bit.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "activation/counting.h"
#include "activation/saved_tensors.h"
#include "activation/trained_blocks.h"
#include "engine/impl.h"

namespace by_operator {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

Dict with_list(Dict config, const gannet::List& names) {
  if (!names.empty()) config["gannet"] = Dict{{"activation_checkpointing", Dict{{"recompute", names}}}};
  return config;
}

const gannet::List kNames = {"gelu", "layer_norm", "dropout", "add"};

constexpr TrainedBlocks kBlocksRun{.blocks = 5, .width = 32, .samples = 2, .words = 10, .steps = 3};

RANK_BODY(operators_at_every_stage) {
  world();
  for (const int64_t stage : {0, 1, 2, 3})
    for (const std::string dtype : {"fp32", "bf16"}) {
      const Dict config = stage3(stage, {}, dtype);
      const at::Tensor plain = kBlocksRun.trained(config);
      const std::string what = "stage " + std::to_string(stage) + ", " + dtype;
      expect(at::equal(kBlocksRun.trained(with_list(config, kNames)), plain), what);
      expect(at::equal(kBlocksRun.trained(with_list(config, kNames), Recompute::kBlocks), plain), what + ", with regions");
    }
  const Dict offloaded =
      stage3(3, Dict{{"offload_optimizer", Dict{{"device", "cpu"}}}, {"offload_param", Dict{{"device", "cpu"}}}});
  expect(at::equal(kBlocksRun.trained(with_list(offloaded, kNames)), kBlocksRun.trained(offloaded)), "stage 3, offloaded");
}

RANK_BODY(parameters_that_recipes_need) {
  world();
  const auto peak = [&](const gannet::List& names) {
    const auto engine = kBlocksRun.engine_of(with_list(stage3(3, Dict{{"stage3_prefetch_bucket_size", 0}}), names));
    kBlocksRun.train(*engine, 2);
    return engine->impl().store.residency()->peak_bytes();
  };
  const int64_t plain = peak({}), listed = peak(kNames);
  expect(plain > 0 && listed <= plain, std::to_string(listed) + " bytes where " + std::to_string(plain) + " are without");
}

// A second engine with another list in between, evaluation, and an engine's forward as a region of the program's.
RANK_BODY(beside_other_engines) {
  world();
  const auto run = [&](const gannet::List& names, const gannet::List& others) {
    const auto first = kBlocksRun.engine_of(with_list(stage3(0), names)),
               second = kBlocksRun.engine_of(with_list(stage3(3), others));
    torch::manual_seed(4);
    const auto [ids, targets] = words_of(0, 2, 10);
    for (int64_t step = 0; step < 2; ++step) {
      const at::Tensor one = first->forward(ids, targets), two = second->forward(ids, targets);
      second->backward(two);
      first->backward(one);
      first->step();
      second->step();
      const torch::NoGradGuard no_grad;
      first->forward(ids, targets);
    }
    const at::Tensor loss = gannet::checkpointing::checkpoint(
        [&](const at::Tensor& ids, const at::Tensor& targets) { return first->module()->forward(ids, targets); }, ids, targets);
    first->forward(ids, targets);
    expect(gannet::activation::keeper_here() == nullptr, "nobody keeps after a forward");
    return torch::cat({parameters_of(*first), parameters_of(*second), loss.detach().reshape({1})});
  };
  const at::Tensor plain = run({}, {});
  expect(at::equal(run(kNames, {}), plain), "beside an engine without a list");
  expect(at::equal(run(kNames, {"gelu"}), plain), "beside an engine with another");
}

RANK_BODY(bytes_that_a_forward_keeps) {
  world();
  const auto kept = [](const gannet::List& names) {
    const auto engine = kBlocksRun.engine_of(with_list(stage3(0), names), Recompute::kNothing, 0);
    const auto [ids, targets] = words_of(0, 4, 64);
    const Counted counted;
    const int64_t before = CountingAllocator::live;
    const at::Tensor loss = engine->forward(ids, targets);
    const int64_t kept = CountingAllocator::live - before;
    engine->backward(loss);
    engine->step();
    return kept;
  };
  constexpr int64_t kUnit = 4 * 4 * 64 * 32, kBlocks = 5;  // batch, length, width, in fp32
  const int64_t plain = kept({}), gelu = kept({"gelu"}), norms = kept({"gelu", "layer_norm"});
  const std::string found = std::to_string(plain) + ", " + std::to_string(gelu) + ", " + std::to_string(norms);
  expect(gelu <= plain - 39 * kBlocks * kUnit / 10, found);
  expect(norms <= gelu - 19 * kBlocks * kUnit / 10, found);
}

RANK_BODY(an_unknown_operator) {
  world();
  try {
    kBlocksRun.engine_of(with_list(stage3(0), {"layernorm"}));
    expect(false, "it was taken");
  } catch (const gannet::Error& error) {
    expect(error.code() == gannet::ErrorCode::kConfig, "code");
    expect(error.message().find("recompute names 'layernorm'") != std::string::npos, error.message());
    expect(error.message().find("did you mean 'layer_norm'?") != std::string::npos, error.message());
  }
}

TEST(RecomputationByOperator, TrainsAsWithoutItOnOneRank) { ranks::expect_all_succeed(run_ranks("operators_at_every_stage", 1)); }
TEST(RecomputationByOperator, TrainsAsWithoutItOnTwoRanks) {
  ranks::expect_all_succeed(run_ranks("operators_at_every_stage", 2));
}
TEST(RecomputationByOperator, GathersNoMoreParametersAtATime) {
  ranks::expect_all_succeed(run_ranks("parameters_that_recipes_need", 2));
}
TEST(RecomputationByOperator, LeavesOtherEnginesAlone) { ranks::expect_all_succeed(run_ranks("beside_other_engines", 1)); }
TEST(RecomputationByOperator, IsTurnedOnByTheConfig) { ranks::expect_all_succeed(run_ranks("bytes_that_a_forward_keeps", 1)); }
TEST(RecomputationByOperator, RefusesAnUnknownName) { ranks::expect_all_succeed(run_ranks("an_unknown_operator", 1)); }

}  // namespace by_operator
