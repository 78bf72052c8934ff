#include <gannet/join.h>
#include <gannet/sample_queue.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "data/samples.h"

namespace gannet {
namespace {

using testing::HasSubstr;

// The ranks of an engine, as threads: mean() is their barrier.
class Ranks {
 public:
  explicit Ranks(size_t count) : count_(count) {}
  double mean(double value) {
    std::unique_lock lock(mutex_);
    sum_ += value;
    if (++arrived_ == count_) {
      result_ = sum_ / static_cast<double>(count_);
      sum_ = 0;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&, round = round_] { return round_ != round; });
    }
    return result_;
  }
  int64_t rounds() const { return round_; }

 private:
  const size_t count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  double sum_ = 0, result_ = 0;
  size_t arrived_ = 0;
  int64_t round_ = 0;
};

struct Step {
  Numbers batch;
  double scale;
  bool operator==(const Step&) const = default;
};
void PrintTo(const Step& step, std::ostream* out) { *out << testing::PrintToString(step.batch) << " * " << step.scale; }

// Runs `body(rank)` on a thread for each rank.
void on_ranks(size_t count, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (auto& thread : threads) thread.join();
}

std::vector<Step> epoch_of(Join<Numbers>& join) {
  std::vector<Step> steps;
  while (auto* batch = join.next()) steps.push_back({*batch, join.scale()});
  return steps;
}

std::list<int64_t> counting(int64_t from, int64_t count) {
  std::list<int64_t> items;
  for (int64_t i = 0; i < count; ++i) items.push_back(from + i);
  return items;
}

TEST(Join, RanksThatAreOutRepeatTheirLastBatchWithZeroWeightUntilAllAre) {
  Ranks engine(3);
  std::vector<std::vector<Step>> steps(3);
  on_ranks(3, [&](size_t rank) {
    auto loader = numbers(counting(10 * static_cast<int64_t>(rank), rank == 0 ? 1 : rank == 1 ? 3 : 2), {});
    Join join(engine, *loader);
    for (int epoch = 0; epoch < 2; ++epoch) {
      steps[rank] = epoch_of(join);
      EXPECT_EQ(loader->cursor(), (DataCursor{.epoch = epoch + 1}));
    }
  });
  EXPECT_EQ(steps[0], (std::vector<Step>{{{0}, 1}, {{0}, 0}, {{0}, 0}}));
  EXPECT_EQ(steps[1], (std::vector<Step>{{{10}, 1}, {{11}, 1.5}, {{12}, 3}}));
  EXPECT_EQ(steps[2], (std::vector<Step>{{{20}, 1}, {{21}, 1.5}, {{21}, 0}}));
}

TEST(Join, OfRanksWithEqualCountsChangesNothing) {
  Ranks engine(2);
  on_ranks(2, [&](size_t rank) {
    const LoaderOptions options{.batch_size = 2, .seed = 4, .rank = static_cast<int64_t>(rank), .world_size = 2};
    auto plain = numbers(Range{11}, options), joined = numbers(Range{11}, options);
    Join join(engine, *joined);
    std::vector<Step> expected;
    for (auto& batch : *plain) expected.push_back({batch, 1});
    EXPECT_EQ(epoch_of(join), expected);
    EXPECT_EQ(joined->cursor(), plain->cursor());
  });
}

TEST(Join, WeighsBatchesAsItIsTold) {
  Ranks engine(2);
  on_ranks(2, [&](size_t rank) {
    auto loader = numbers(counting(0, rank == 0 ? 4 : 3), {.batch_size = 2});
    Join join(engine, *loader, {.weight = [](const Numbers& batch) { return static_cast<double>(batch.size()); }});
    const auto steps = epoch_of(join);
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(steps[0].scale, 1);
    EXPECT_DOUBLE_EQ(steps[1].scale, rank == 0 ? 4.0 / 3 : 2.0 / 3) << "2 samples and 1";
  });
}

TEST(Join, TakesWhatInitializeReturns) {
  auto engine = std::make_shared<Ranks>(1);
  auto loader = numbers(counting(0, 2), {});
  Join join(engine, loader, {.spare = std::make_shared<Numbers>()});
  EXPECT_EQ(epoch_of(join), (std::vector<Step>{{{0}, 1}, {{1}, 1}}));
}

TEST(Join, AFailureOfOneRankIsToldToTheOthers) {
  Ranks engine(2);
  on_ranks(2, [&](size_t rank) {
    auto item = [rank, at = int64_t{0}]() mutable -> std::optional<int64_t> {
      if (rank == 1 && at == 2) throw std::runtime_error("the disk is gone");
      return at++;
    };
    auto loader = numbers(item, {.workers = 0});
    Join join(engine, *loader);
    try {
      epoch_of(join);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(rank == 1 ? "the disk is gone" : "another rank failed while it read"));
    }
  });
}

TEST(Join, ARankWithoutAnyBatchNeedsASpareOne) {
  for (const bool spare : {false, true}) {
    Ranks engine(2);
    on_ranks(2, [&](size_t rank) {
      auto loader = numbers(counting(0, rank == 0 ? 2 : 0), {});
      Join join(engine, *loader, {.spare = spare && rank == 1 ? std::make_shared<Numbers>(Numbers{7}) : nullptr});
      if (spare) {
        EXPECT_EQ(epoch_of(join), rank == 0 ? (std::vector<Step>{{{0}, 2}, {{1}, 2}}) : (std::vector<Step>{{{7}, 0}, {{7}, 0}}));
        return;
      }
      try {
        epoch_of(join);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(rank == 1 ? "this rank has had no batch at all" : "another rank has had no batch"));
      }
    });
  }
}

TEST(Join, WithoutDataOnAnyRankIsAnEmptyEpoch) {
  Ranks engine(2);
  on_ranks(2, [&](size_t) {
    auto loader = numbers(counting(0, 0), {});
    Join join(engine, *loader);
    EXPECT_EQ(join.next(), nullptr);
    EXPECT_EQ(join.next(), nullptr);
    EXPECT_EQ(loader->cursor().epoch, 2);
  });
}

TEST(Join, RefusesAWeightOfZeroOnEveryRankAtOnce) {
  Ranks engine(2);
  on_ranks(2, [&](size_t rank) {
    auto loader = numbers(counting(0, 2), {});
    Join join(engine, *loader, {.weight = [rank](const Numbers&) { return rank == 0 ? 0.0 : 1.0; }});
    EXPECT_THROW(join.next(), Error);
  });
}

// A callable that goes on counting over its epochs of `length`, with a state or without one.
struct Steady {
  int64_t length = 0, at = 0;
  std::optional<int64_t> operator()() { return at < length ? std::optional(at++) : (at = 0, std::nullopt); }
};
struct Stateful : Steady {
  Value cursor() const { return at; }
  void seek(const Value& where) { at = where.as_int(); }
};

template <class S>
class JoinOf : public testing::Test {};
using Streams = testing::Types<Steady, Stateful>;
TYPED_TEST_SUITE(JoinOf, Streams);

// Resumed at every step: a rank that was out stays out until the others are, and does not run ahead into its next epoch.
TYPED_TEST(JoinOf, UnevenRanksResumesFromEveryStep) {
  for (const int64_t batch_size : {1, 2}) {
    const auto loader_of = [&](size_t rank) { return numbers(TypeParam{rank == 0 ? 3 : 7}, {.batch_size = batch_size}); };
    std::vector<std::vector<Step>> whole(2);
    std::vector<std::vector<DataCursor>> cursors(2);
    Ranks engine(2);
    on_ranks(2, [&](size_t rank) {
      auto loader = loader_of(rank);
      Join join(engine, *loader);
      cursors[rank].push_back(loader->cursor());
      for (int epoch = 0; epoch < 2; ++epoch)
        while (auto* batch = join.next()) {
          whole[rank].push_back({*batch, join.scale()});
          cursors[rank].push_back(DataCursor::from_dict(loader->cursor().to_dict()));
        }
    });
    ASSERT_EQ(whole[0].size(), whole[1].size());
    for (size_t at = 0; at < whole[0].size(); ++at) {
      Ranks again(2);
      on_ranks(2, [&](size_t rank) {
        auto loader = loader_of(rank);
        loader->seek(DataCursor::for_rank({cursors[0][at], cursors[1][at]}, static_cast<int64_t>(rank), 2));
        Join join(again, *loader, {.spare = std::make_shared<Numbers>(Numbers{-1})});
        std::vector<Step> steps;
        while (steps.size() < whole[0].size() - at)
          if (auto* batch = join.next()) steps.push_back({*batch, join.scale()});
        for (size_t i = 0; i < steps.size(); ++i) {
          EXPECT_EQ(steps[i].scale, whole[rank][at + i].scale) << "rank " << rank << ", resumed at " << at << ", step " << i;
          if (steps[i].scale > 0) EXPECT_EQ(steps[i].batch, whole[rank][at + i].batch) << "rank " << rank << ", at " << at;
        }
      });
    }
  }
}

// Gradients of sums over samples, accumulated over micro-batches: equal to one process that takes the mean of the ranks' losses.
TEST(Join, ScalesEachMicroBatchOfAnAccumulationByItsOwnCount) {
  constexpr size_t kRanks = 3;
  Ranks engine(kRanks);
  std::vector<double> gradients;
  std::mutex mutex;
  on_ranks(kRanks, [&](size_t rank) {
    auto loader = numbers(counting(100 * static_cast<int64_t>(rank) + 1, static_cast<int64_t>(2 + rank)), {});
    Join join(engine, *loader);
    double accumulated = 0;
    for (int64_t micro = 1; auto* batch = join.next(); ++micro) {
      accumulated += static_cast<double>(batch->front()) * join.scale() / 2;  // accumulation of 2
      if (micro % 2 != 0) continue;
      const double averaged = engine.mean(accumulated);
      accumulated = 0;
      std::lock_guard lock(mutex);
      if (rank == 0) gradients.push_back(averaged);
    }
  });
  // Micro-batches: {1, 101, 201}, {2, 102, 202}, {103, 203}, {204}.
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_DOUBLE_EQ(gradients[0], (101.0 + 102.0) / 2);
  EXPECT_DOUBLE_EQ(gradients[1], (153.0 + 204.0) / 2);
}

TEST(Join, OfQueuesThatEndAtDifferentTimes) {
  Ranks engine(2);
  on_ranks(2, [&](size_t rank) {
    SampleQueue<int64_t> queue(2);
    auto loader = numbers(queue, {.batch_size = 2});
    std::thread producer([&] {
      for (int64_t i = 0; i < (rank == 0 ? 3 : 8); ++i) EXPECT_TRUE(queue.push(i));
      queue.close();
    });
    Join join(engine, *loader);
    const auto steps = epoch_of(join);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_EQ(steps[1].scale, 1);
    EXPECT_EQ(steps[2].scale, rank == 0 ? 0 : 2);
    producer.join();
  });
}

}  // namespace
}  // namespace gannet
