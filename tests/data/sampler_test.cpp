#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace gannet::loading {
namespace {

using Samples = std::vector<size_t>;

Samples iota(size_t count) {
  Samples all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// The samples that rank `rank` reads in an epoch, in order.
Samples epoch_of(EpochPartition cut, int64_t rank, const Samples& order) {
  cut.rank = rank;
  Samples all;
  for (int64_t i = 0; i < cut.micro_batches(); ++i)
    for (const size_t sample : cut.micro_batch(order, i)) all.push_back(sample);
  return all;
}

// The samples that all ranks together read in one optimizer step.
std::multiset<size_t> step_of(EpochPartition cut, int64_t accumulation, int64_t step, const Samples& order) {
  std::multiset<size_t> seen;
  for (cut.rank = 0; cut.rank < cut.world_size; ++cut.rank)
    for (int64_t i = 0; i < accumulation; ++i)
      for (const size_t sample : cut.micro_batch(order, step * accumulation + i)) seen.insert(sample);
  return seen;
}

TEST(EpochOrder, IsAPermutationThatChangesWithSeedAndEpoch) {
  const Samples order = epoch_order(1000, true, 5, 0);
  Samples sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, iota(1000));
  EXPECT_EQ(order, epoch_order(1000, true, 5, 0));
  EXPECT_NE(order, epoch_order(1000, true, 5, 1));
  EXPECT_NE(order, epoch_order(1000, true, 6, 0));
  EXPECT_EQ(epoch_order(5, false, 5, 3), iota(5));
}

// Expected orders from an independent MT19937-64, itself checked against the published 10000th output (9981545732273789042).
TEST(EpochOrder, IsTheSameOnEveryPlatform) {
  EXPECT_EQ(epoch_order(10, true, 0, 0), (Samples{7, 2, 0, 8, 3, 9, 6, 1, 5, 4}));
  EXPECT_EQ(epoch_order(10, true, 42, 3), (Samples{4, 7, 2, 8, 0, 5, 6, 3, 9, 1}));
}

TEST(EpochOrder, GivesEveryPermutationEquallyOften) {
  constexpr int kRounds = 24000;  // 24 permutations of 4
  std::map<Samples, int> seen;
  for (int64_t seed = 0; seed < kRounds; ++seed) ++seen[epoch_order(4, true, seed, 0)];
  ASSERT_EQ(seen.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : seen) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, p = 0.001
}

TEST(Cut, DealsRunsOfAMicroBatchAndWrapsToEqualCounts) {
  const EpochPartition cut{.samples = 7, .batch_size = 2, .world_size = 2};
  EXPECT_EQ(cut.micro_batches(), 2);
  EXPECT_EQ(epoch_of(cut, 0, iota(7)), (Samples{0, 1, 4, 5}));
  EXPECT_EQ(epoch_of(cut, 1, iota(7)), (Samples{2, 3, 6, 0}));
}

TEST(Cut, SharesTheLastRoundEvenly) {
  const EpochPartition cut{.samples = 14, .batch_size = 4, .world_size = 2};
  EXPECT_EQ(epoch_of(cut, 0, iota(14)), (Samples{0, 1, 2, 3, 8, 9, 10}));
  EXPECT_EQ(epoch_of(cut, 1, iota(14)), (Samples{4, 5, 6, 7, 11, 12, 13}));
}

TEST(Cut, LeavesOutWhatDoesNotDivideWithDropLast) {
  const EpochPartition cut{.samples = 11, .batch_size = 2, .world_size = 2, .drop_last = true};
  EXPECT_EQ(cut.samples_per_rank(), 5);
  EXPECT_EQ(epoch_of(cut, 0, iota(11)), (Samples{0, 1, 4, 5}));
  EXPECT_EQ(epoch_of(cut, 1, iota(11)), (Samples{2, 3, 6, 7}));
}

TEST(Cut, WrapsMoreThanOnceWhenThereAreMoreRanksThanSamples) {
  const EpochPartition cut{.samples = 2, .batch_size = 4, .world_size = 5};
  for (int64_t rank = 0; rank < 5; ++rank) EXPECT_EQ(epoch_of(cut, rank, iota(2)), Samples{static_cast<size_t>(rank % 2)});
}

TEST(Cut, GivesTheSameSamplesToAStepAtEveryWorldSizeOfEqualTotalBatch) {
  const Samples order = epoch_order(50, true, 1, 0);
  const EpochPartition one{.samples = 50, .batch_size = 2, .world_size = 1};
  const EpochPartition two{.samples = 50, .batch_size = 2, .world_size = 2};
  const EpochPartition four{.samples = 50, .batch_size = 2, .world_size = 4};
  for (int64_t step = 0; step < 6; ++step) {
    const auto expected = step_of(one, 4, step, order);
    EXPECT_EQ(expected.size(), 8u);
    EXPECT_EQ(step_of(two, 2, step, order), expected);
    EXPECT_EQ(step_of(four, 1, step, order), expected);
  }
}

TEST(Cut, PutsTheSameSamplesTogetherInAMicroBatchAtEveryWorldSize) {
  const Samples order = epoch_order(48, true, 1, 0);
  const auto micro_batches = [&](int64_t world_size) {
    std::vector<Samples> all;
    for (int64_t i = 0; i < 16 / world_size; ++i)
      for (int64_t rank = 0; rank < world_size; ++rank)
        all.push_back(
            EpochPartition{.samples = 48, .batch_size = 3, .rank = rank, .world_size = world_size}.micro_batch(order, i));
    return all;
  };
  EXPECT_EQ(micro_batches(2), micro_batches(1));
  EXPECT_EQ(micro_batches(4), micro_batches(1));
}

TEST(Cut, AfterAResumeAtAnotherWorldSizeGivesTheRestOnce) {
  const Samples order = epoch_order(24, true, 1, 0);
  const EpochPartition before{.samples = 24, .batch_size = 2, .world_size = 2};
  Samples seen;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t rank = 0; rank < 2; ++rank) {
      EpochPartition of_rank = before;
      of_rank.rank = rank;
      const Samples batch = of_rank.micro_batch(order, i);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  const EpochPartition after{.samples = 24, .given = before.given_after(3), .batch_size = 1, .world_size = 3};
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Samples rest = epoch_of(after, rank, order);
    seen.insert(seen.end(), rest.begin(), rest.end());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, iota(24));
}

TEST(Cut, EndsAnInterruptedEpochWhereItWouldHaveEnded) {
  for (const bool drop_last : {false, true})
    for (int64_t samples = 8; samples < 40; ++samples) {
      const EpochPartition whole{.samples = samples, .batch_size = 2, .world_size = 2, .drop_last = drop_last, .multiple = 2};
      for (int64_t given = 0; given <= whole.micro_batches(); ++given) {
        EpochPartition rest = whole;
        rest.given = whole.given_after(given);
        EXPECT_EQ(given + rest.micro_batches(), whole.micro_batches()) << samples << " samples, " << given << " given";
      }
    }
}

TEST(Cut, LeavesOutWhatIsOverAMultiple) {
  const EpochPartition cut{.samples = 22, .batch_size = 2, .multiple = 4};
  EXPECT_EQ(cut.all_micro_batches(), 11);
  EXPECT_EQ(cut.micro_batches(), 8);
  EXPECT_EQ(cut.leftover(), 3);
}

}  // namespace
}  // namespace gannet::loading
