// All that operators save on a tier, switched on by the config: at every ZeRO stage, on one and two ranks, the run is the plain
// one, bit for bit.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include "activation/trained_blocks.h"
#include "engine/impl.h"
#include "plugin/support.h"

namespace keep_on_tier {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

Dict with_keep(Dict config, const std::string& keep, const std::string& folder) {
  config["gannet"] = Dict{{"activation_checkpointing", Dict{{"keep", keep}, {"nvme_path", folder}}}};
  return config;
}

// Most of a block's tensors are above the threshold in fp32, and some in bf16.
constexpr TrainedBlocks kBlocksRun{.blocks = 4, .width = 64, .samples = 4, .words = 96, .steps = 2};

RANK_BODY(saved_tensors_at_every_stage) {
  world();
  const TemporaryFolder folder;
  for (const int64_t stage : {0, 1, 2, 3})
    for (const std::string dtype : {"fp32", "bf16"}) {
      const Dict config = stage3(stage, {}, dtype);
      const at::Tensor plain = kBlocksRun.trained(config);
      for (const std::string keep : {"cpu", "nvme"}) {
        if (keep == "nvme" && stage % 3 != 0) continue;
        const std::string what = "stage " + std::to_string(stage) + ", " + dtype + ", " + keep;
        expect(at::equal(kBlocksRun.trained(with_keep(config, keep, folder.string())), plain), what);
        if (stage % 3 == 0)
          expect(at::equal(kBlocksRun.trained(with_keep(config, keep, folder.string()), Recompute::kBlocks), plain),
                 what + ", with regions");
      }
    }
  const Dict offloaded =
      stage3(3, Dict{{"offload_optimizer", Dict{{"device", "cpu"}}}, {"offload_param", Dict{{"device", "cpu"}}}});
  expect(at::equal(kBlocksRun.trained(with_keep(offloaded, "cpu", "")), kBlocksRun.trained(offloaded)), "stage 3, offloaded");
}

// Gathered weights are saved by every product: none of them is copied, and none stays longer.
RANK_BODY(parameters_that_are_not_moved) {
  world();
  const auto run = [&](const Dict& config) {
    const auto engine = kBlocksRun.engine_of(config);
    kBlocksRun.train(*engine, 2);
    const auto& saved = engine->impl().activations.saved;
    return std::pair(engine->impl().store.residency()->peak_bytes(), saved ? saved->tier().bytes() : 0);
  };
  const Dict config = stage3(3, Dict{{"stage3_prefetch_bucket_size", 0}}), whole = stage3(0);
  const auto [plain, nothing] = run(config);
  const auto [kept, bytes] = run(with_keep(config, "cpu", ""));
  expect(plain > 0 && kept <= plain, std::to_string(kept) + " bytes where " + std::to_string(plain) + " are without");
  const auto stage0 = kBlocksRun.engine_of(with_keep(whole, "cpu", ""));
  kBlocksRun.train(*stage0, 2);
  const uint64_t at_stage0 = stage0->impl().activations.saved->tier().bytes();
  expect(bytes == at_stage0, std::to_string(bytes) + " bytes on the tier, and at stage 0 " + std::to_string(at_stage0));
}

TEST(SavedTensorsOnATier, TrainAsWithoutItOnOneRank) { ranks::expect_all_succeed(run_ranks("saved_tensors_at_every_stage", 1)); }
TEST(SavedTensorsOnATier, TrainAsWithoutItOnTwoRanks) { ranks::expect_all_succeed(run_ranks("saved_tensors_at_every_stage", 2)); }
TEST(SavedTensorsOnATier, LeaveParametersWhereTheyAre) {
  ranks::expect_all_succeed(run_ranks("parameters_that_are_not_moved", 2));
}

}  // namespace keep_on_tier
