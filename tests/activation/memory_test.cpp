// Memory that a forward keeps for its backward, counted by the allocator.
#include <gtest/gtest.h>

#include "activation/blocks.h"
#include "activation/counted.h"

namespace gannet::test {
namespace {

using CheckpointMemory = CountedMemory;

// 12 blocks of width 256, 4 x 256 words, dropout in attention too: of every peak 36.7 MiB are gradients.
TEST_F(CheckpointMemory, OfABlockItsInputAlone) {
  const auto peak = [](Recompute recompute) {
    auto model = make_transformer(recompute, 12, 256, 4, 0.1);
    const auto [ids, targets] = words_of(0, 4, 256);
    return peak_of([&, ids = ids, targets = targets] { model->forward(ids, targets).backward(); });
  };
  const double plain = peak(Recompute::kNothing), blocks = peak(Recompute::kBlocks), groups = peak(Recompute::kGroups);
  RecordProperty("plain", std::to_string(plain));
  RecordProperty("blocks", std::to_string(blocks));
  RecordProperty("groups", std::to_string(groups));
  EXPECT_GT(plain, 300);
  EXPECT_LE(blocks, 72);
  EXPECT_LE(groups, 72);
}

TEST_F(CheckpointMemory, ARegionsTensorsEndWithItsGraph) {
  const at::Tensor x = torch::randn({1 << 18}, torch::requires_grad());  // 1 MiB
  const auto f = [](const at::Tensor& x) { return x.tanh().exp().sin(); };
  const int64_t start = Counting::live;
  {
    const at::Tensor y = checkpointing::checkpoint(f, x);
    EXPECT_LE(Counting::live - start, (1 << 20) + (64 << 10)) << "y alone, and a generator's state";
    // One of the two ends of the graph: what the other would have read is gone with this backward.
    const at::Tensor side = checkpointing::checkpoint(f, y);
    const int64_t forward = Counting::live;
    {
      const auto gradient = torch::autograd::grad({side.sum()}, {y}, {}, /*retain_graph=*/true);
    }
    EXPECT_LE(Counting::live - forward, 64 << 10);
  }
  EXPECT_LE(Counting::live - start, 64 << 10);
}

}  // namespace
}  // namespace gannet::test
