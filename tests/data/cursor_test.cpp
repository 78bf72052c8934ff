// Cursors as a checkpoint keeps them: across world sizes, through a document, and refused where they do not belong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <string>

#include "data/samples.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// How often each sample was given.
using Tally = std::map<int64_t, int>;

// All ranks read up to `limit` micro-batches of an epoch, from `cursors` (none: the beginning); returns what they saved.
std::vector<DataCursor> read_on(int64_t samples, LoaderOptions options, const std::vector<DataCursor>& cursors, int64_t limit,
                                Tally& tally) {
  std::vector<DataCursor> saved;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    auto loader = numbers(Range{samples}, options);
    if (!cursors.empty()) loader->seek(DataCursor::for_rank(cursors, options.rank, options.world_size));
    int64_t given = 0;
    const int64_t epoch = loader->cursor().epoch;
    if (limit > 0)
      for (auto& batch : *loader) {
        if (loader->cursor().epoch != epoch) ADD_FAILURE() << "went into the next epoch";
        for (const int64_t sample : batch) ++tally[sample];
        if (++given == limit) break;
      }
    saved.push_back(DataCursor::from_dict(loader->cursor().to_dict()));
  }
  return saved;
}

struct Change {
  int64_t before, after;
};
constexpr Change kChanges[] = {{1, 2}, {2, 1}, {2, 4}, {4, 3}};
constexpr int64_t kTheRest = 1000;

int64_t micro_batches(int64_t samples, const LoaderOptions& options) { return numbers(Range{samples}, options)->size(); }

// Fewer than a round of the ranks are given twice, since all must get equal counts, and they are the order's first.
TEST(AnotherWorldSize, GivesTheRestOfTheEpochOnceFromEveryPosition) {
  for (const auto& [before, after] : kChanges)
    for (const int64_t samples : {23, 24, 25, 37, 48})
      for (const bool same_total : {false, true}) {
        const LoaderOptions first{.batch_size = same_total ? 12 / before : 2, .seed = 7, .world_size = before, .workers = 0};
        LoaderOptions second = first;
        second.world_size = after;
        if (same_total) second.batch_size = 12 / after;
        for (int64_t position = 0; position < micro_batches(samples, first); ++position) {
          SCOPED_TRACE(testing::Message() << before << " -> " << after << " ranks, " << samples << " samples, at " << position);
          Tally tally;
          const auto cursors = read_on(samples, first, {}, position, tally);
          for (const auto& [sample, times] : tally) ASSERT_EQ(times, 1) << sample;
          read_on(samples, second, cursors, kTheRest, tally);
          int64_t repeated = 0;
          ASSERT_EQ(tally.size(), static_cast<size_t>(samples)) << "none lost";
          for (const auto& [sample, times] : tally) repeated += times - 1;
          const int64_t left = samples - std::min(samples, position * first.batch_size * before);
          EXPECT_EQ(repeated, (after - left % after) % after);
        }
      }
}

TEST(AnotherWorldSize, WithDropLastGivesNoSampleTwiceAndLeavesOutLessThanAMicroBatchOfAllRanks) {
  for (const auto& [before, after] : kChanges)
    for (const int64_t samples : {23, 24, 25, 37, 48}) {
      const LoaderOptions first{.batch_size = 2, .seed = 7, .drop_last = true, .world_size = before, .workers = 0};
      LoaderOptions second = first;
      second.world_size = after;
      for (int64_t position = 0; position < micro_batches(samples, first); ++position) {
        SCOPED_TRACE(testing::Message() << before << " -> " << after << " ranks, " << samples << " samples, at " << position);
        const int64_t left = samples - position * first.batch_size * before, each = second.batch_size * after;
        if (left < each) continue;  // nothing of this epoch is left to give: the next test
        Tally tally;
        const auto cursors = read_on(samples, first, {}, position, tally);
        read_on(samples, second, cursors, kTheRest, tally);
        for (const auto& [sample, times] : tally) ASSERT_EQ(times, 1) << sample;
        EXPECT_EQ(static_cast<int64_t>(tally.size()), samples - left % each);
      }
    }
}

TEST(AnotherWorldSize, GoesOnWithTheNextEpochWhereNothingOfThisOneIsLeft) {
  Tally tally;
  const LoaderOptions first{.batch_size = 2, .drop_last = true, .world_size = 1, .workers = 0};
  const auto cursors = read_on(11, first, {}, 4, tally);  // 3 samples are left, 4 ranks would take 8
  LoaderOptions second = first;
  second.world_size = 4;
  auto loader = numbers(Range{11}, second);
  loader->seek(DataCursor::for_rank(cursors, 0, 4));
  EXPECT_EQ(epoch_of(*loader).size(), 1u);
  EXPECT_EQ(loader->cursor().epoch, 2);
}

TEST(AnotherWorldSize, SeesTheSameSamplesInEachStepOfEqualTotalBatch) {
  const LoaderOptions one{.batch_size = 12, .seed = 3, .workers = 0};
  for (const int64_t world : {2, 3, 4}) {
    auto whole = numbers(Range{61}, one);
    auto it = whole->begin();
    const DataCursor at_one = whole->cursor();
    LoaderOptions many = one;
    many.world_size = world;
    many.batch_size = 12 / world;
    std::vector<std::shared_ptr<DataLoader<Numbers>>> ranks;
    std::vector<DataLoader<Numbers>::Iterator> at;
    for (many.rank = 0; many.rank < world; ++many.rank) {
      ranks.push_back(numbers(Range{61}, many));
      ranks.back()->seek(DataCursor::for_rank({at_one}, many.rank, world));
      at.push_back(ranks.back()->begin());
    }
    for (int step = 1; step < 5; ++step) {
      Numbers expected = *++it, found;
      for (auto& rank : at) {
        found.insert(found.end(), rank->begin(), rank->end());
        ++rank;
      }
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(found, expected) << world << " ranks, step " << step;
    }
  }
}

TEST(AnotherWorldSize, MayChangeSeveralTimesWithinAnEpoch) {
  Tally tally;
  std::vector<DataCursor> cursors;
  for (const int64_t world : {2, 4, 3, 1, 2})
    cursors = read_on(59, {.batch_size = 2, .seed = 1, .world_size = world, .workers = 0}, cursors, world == 2 ? 3 : 2, tally);
  read_on(59, {.batch_size = 2, .seed = 1, .world_size = 3, .workers = 0}, cursors, kTheRest, tally);
  EXPECT_EQ(tally.size(), 59u);
  for (const auto& [sample, times] : tally) EXPECT_EQ(times, 1) << sample;
}

TEST(Cursor, PassesThroughADocument) {
  const DataCursor cursor{.seed = 5, .epoch = 2, .micro_batches = 3, .samples = 24, .dataset_size = 100, .shuffle = true};
  EXPECT_EQ(DataCursor::from_dict(cursor.to_dict()), cursor);
  const DataCursor of_stream{.epoch = 1, .micro_batches = 3, .ended = true, .state = Dict{{"file", "a"}, {"line", 7}}};
  EXPECT_EQ(DataCursor::from_dict(of_stream.to_dict()), of_stream);
}

TEST(Cursor, SavesThatAreBrokenAreNamed) {
  Dict saved = DataCursor().to_dict();
  saved["epoch"] = "two";
  EXPECT_THAT(refusal_of([&] { DataCursor::from_dict(saved); }), AllOf(HasSubstr("'epoch'"), HasSubstr("\"two\"")));
  saved.erase("epoch");
  EXPECT_THAT(refusal_of([&] { DataCursor::from_dict(saved); }), HasSubstr("lacks 'epoch'"));
  saved = DataCursor().to_dict();
  saved["shards"] = 3;
  EXPECT_THAT(refusal_of([&] { DataCursor::from_dict(saved); }), HasSubstr("'shards'"));
}

TEST(Cursor, OfADatasetOfAnotherSizeIsRefusedAtAnEpochsStartToo) {
  auto saved = numbers(Range{10}, {}), other = numbers(Range{12}, {});
  EXPECT_THAT(refusal_of([&] { other->seek(saved->cursor()); }), HasSubstr("a dataset of 10 samples, this one has 12"));
  [[maybe_unused]] auto it = saved->begin();
  EXPECT_THAT(refusal_of([&] { other->seek(saved->cursor()); }), HasSubstr("a dataset of 10 samples, this one has 12"));
  auto stream = numbers(std::list<int64_t>{1, 2}, {});
  EXPECT_THAT(refusal_of([&] { stream->seek(saved->cursor()); }), HasSubstr("this one is a stream"));
}

TEST(Cursor, WithinAShuffledEpochIsRefusedByALoaderThatDoesNotShuffle) {
  auto saved = numbers(Range{10}, {}), other = numbers(Range{10}, {.shuffle = false});
  other->seek(saved->cursor());  // at an epoch's start it makes no difference
  [[maybe_unused]] auto it = saved->begin();
  EXPECT_THAT(refusal_of([&] { other->seek(saved->cursor()); }), HasSubstr("was shuffled, this loader does not"));
}

TEST(Cursor, OfRanksThatStoodAtDifferentPlacesAreRefused) {
  const DataCursor a{.epoch = 1, .samples = 8, .dataset_size = 20}, b{.epoch = 1, .samples = 12, .dataset_size = 20};
  EXPECT_THAT(refusal_of([&] { DataCursor::for_rank({a, b}, 0, 2); }), AllOf(HasSubstr("8 of 20"), HasSubstr("rank 1 at")));
}

TEST(Cursor, OfStreamsIsEachRanksOwnAndGoesToNoOtherWorldSize) {
  const DataCursor a{.epoch = 1, .micro_batches = 3}, b{.epoch = 1, .micro_batches = 5};
  EXPECT_EQ(DataCursor::for_rank({a, b}, 1, 2), b);
  EXPECT_THAT(refusal_of([&] { DataCursor::for_rank({a, b}, 0, 4); }), HasSubstr("cannot be divided among 4"));
  const DataCursor start{.epoch = 3};
  EXPECT_EQ(DataCursor::for_rank({start, start}, 3, 4), start);
}

TEST(Cursor, MayBeSoughtWithinALoopWhichThenEnds) {
  auto loader = numbers(Range{8}, {.seed = 2});
  const auto whole = epoch_of(*numbers(Range{8}, {.seed = 2}));
  std::shared_ptr<ResumableLoader> erased = loader;
  DataCursor second;
  int given = 0;
  for ([[maybe_unused]] auto& batch : *loader) {
    if (++given == 2) second = erased->cursor();
    if (given == 5) erased->seek(second);
  }
  EXPECT_EQ(given, 5);
  EXPECT_EQ(epoch_of(*loader), std::vector<Numbers>(whole.begin() + 2, whole.end()));
}

}  // namespace
}  // namespace gannet
