#include "params/layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "params/pieces.h"

namespace gannet::zero {
namespace {

TEST(Layout, FillsBucketsFromTheEndAndPadsThemToEqualShards) {
  const Layout layout = lay_out({10, 100, 7}, 160, 2);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 64, 192}));
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(layout.buckets[0].numel, 64);   // only the first: 10, padded to two shards of 32
  EXPECT_EQ(layout.buckets[1].offset, 64);  // 128 + 32 elements, padded to two shards of 96
  EXPECT_EQ(layout.buckets[1].numel, 192);
  EXPECT_EQ(layout.numel, 256);
}

TEST(Layout, ATensorLargerThanABucketHasOneOfItsOwn) {
  const Layout layout = lay_out({32, 1000, 32}, 64, 1);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(layout.buckets[1].numel, 1024);
  EXPECT_EQ(lay_out({5, 5}, 0, 1).buckets.size(), 2u);
}

TEST(Layout, NothingIsNothing) {
  EXPECT_EQ(lay_out({}, 100, 4).numel, 0);
  EXPECT_TRUE(shards_of(lay_out({}, 100, 4), 0, 4).empty());
}

// Every element of every tensor is owned by one rank, in one place of its own buffers.
TEST(Layout, ShardsCoverEveryTensorOnce) {
  const std::vector<int64_t> numels{1, 31, 32, 33, 1000, 7, 4096, 2};
  for (const int64_t bucket : {int64_t{0}, int64_t{64}, int64_t{1500}, int64_t{1} << 40})
    for (const uint32_t ranks : {1u, 2u, 3u, 8u}) {
      const Layout layout = lay_out(numels, bucket, ranks);
      std::vector<std::vector<int>> owners;
      for (const int64_t numel : numels) owners.emplace_back(numel, 0);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const auto shards = shards_of(layout, rank, ranks);
        int64_t own = 0;
        for (const auto& shard : shards) {
          EXPECT_EQ(shard.own, own);
          EXPECT_EQ(shard.numel % kAlignment, 0);
          own += shard.numel;
        }
        EXPECT_EQ(own * ranks, layout.numel);
        for (const auto& part : parts_of(layout, shards)) {
          EXPECT_EQ(part.offset, layout.offsets[part.tensor] + part.begin);
          for (int64_t i = 0; i < part.numel; ++i) ++owners[part.tensor].at(part.begin + i);
        }
      }
      for (const auto& tensor : owners)
        for (const int count : tensor) ASSERT_EQ(count, 1);
    }
}

TEST(WholeLayout, CutsABucketOnTensorBordersIntoEqualShards) {
  const Layout layout = lay_out_whole({64, 32, 96, 10}, 1 << 20, 2);
  ASSERT_EQ(layout.buckets.size(), 1u);
  EXPECT_EQ(layout.buckets[0].numel, 2 * 128) << "64 + 32 and 96 + 32, the second run is the longer one";
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 64, 128, 224}));
}

TEST(WholeLayout, ABucketHasRoomForAsManyOfTheLargestAsThereAreRanks) {
  const Layout layout = lay_out_whole({1000, 1000, 1000, 1000}, 0, 2);
  ASSERT_EQ(layout.buckets.size(), 2u);
  for (const auto& bucket : layout.buckets) EXPECT_EQ(bucket.numel, 2 * 1024) << "no rank's shard is empty";
  EXPECT_EQ(lay_out_whole({}, 100, 4).numel, 0);
}

TEST(WholeLayout, APageEndsOnTensorBordersAndAnywhereInPadding) {
  Range range;
  range.shard_numel = 9 * 4096;
  range.parts = {{0, 0, 0, 0, 100}, {1, 0, 4096, 4096, 9000}, {2, 0, 16384, 16384, 50}};
  EXPECT_EQ(page_ends(range, 4096).size(), 9u) << "tensors may be cut";
  EXPECT_EQ(page_ends(range, kNoPages), (std::vector<int64_t>{9 * 4096}));
  range.keeps_whole_tensors = true;
  EXPECT_EQ(page_ends(range, 4096), (std::vector<int64_t>{4096, 16384, 20480, 24576, 28672, 32768, 36864}));
  EXPECT_EQ(page_ends(range, 5 * 4096), (std::vector<int64_t>{20480, 36864})) << "as many as there is room for";
}

TEST(WholeLayout, EveryTensorIsWholeOnOneRank) {
  const std::vector<int64_t> numels{1, 31, 32, 33, 1000, 7, 4096, 2};
  for (const int64_t bucket : {int64_t{0}, int64_t{64}, int64_t{1500}, int64_t{1} << 40})
    for (const uint32_t ranks : {1u, 2u, 3u, 8u}) {
      const Layout layout = lay_out_whole(numels, bucket, ranks);
      std::vector<int> owners(numels.size());
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const auto shards = shards_of(layout, rank, ranks);
        int64_t own = 0, end = 0;
        for (const auto& shard : shards) {
          EXPECT_EQ(shard.own, own);
          EXPECT_EQ(shard.numel % kAlignment, 0);
          own += shard.numel;
        }
        for (const auto& part : parts_of(layout, shards)) {
          EXPECT_EQ(part.begin, 0);
          EXPECT_EQ(part.numel, numels[part.tensor]);
          EXPECT_GE(part.own, end) << "in the order of their places";
          end = part.own + part.numel;
          ++owners[part.tensor];
        }
      }
      for (const int count : owners) EXPECT_EQ(count, 1);
    }
}

}  // namespace
}  // namespace gannet::zero
