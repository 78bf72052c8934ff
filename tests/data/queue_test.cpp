#include <gannet/log.h>
#include <gannet/sample_queue.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "data/samples.h"

namespace gannet {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

TEST(SampleQueue, GivesWhatAThreadPushesInItsOrder) {
  for (const int64_t workers : {0, 1}) {
    SampleQueue<int64_t> queue(3);
    auto loader = numbers(queue, {.batch_size = 2, .workers = workers});
    std::thread producer([&] {
      for (int64_t i = 0; i < 7; ++i) EXPECT_TRUE(queue.push(i));
      queue.close();
    });
    EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0, 1}, {2, 3}, {4, 5}, {6}}));
    producer.join();
    EXPECT_TRUE(epoch_of(*loader).empty()) << "it is closed";
  }
}

TEST(SampleQueue, EndsAnEpochWhereItWasSaidAndSkipsEmptyOnes) {
  SampleQueue<int64_t> queue(8);
  auto loader = numbers(queue, {.batch_size = 2});
  queue.end_epoch();
  for (int64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(queue.push(i));
    if (i == 2) {
      queue.end_epoch();
      queue.end_epoch();
    }
  }
  queue.close();
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0, 1}, {2}}));
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{3, 4}}));
}

TEST(SampleQueue, OfWholeBatchesIsGivenAsItIs) {
  SampleQueue<Numbers> queue(4);
  auto loader = make_loader<Numbers>(Batched(queue.reader()));
  ASSERT_TRUE(queue.push({1, 2, 3}));
  ASSERT_TRUE(queue.push({4}));
  queue.close();
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{1, 2, 3}, {4}}));
}

TEST(SampleQueue, HoldsNoMoreThanItsCapacity) {
  SampleQueue<int64_t> queue(2);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.push_for(2, 1ms));
  EXPECT_FALSE(queue.try_push(3));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(queue.push_for(3, 30ms));
  EXPECT_GE(std::chrono::steady_clock::now() - before, 30ms);
  EXPECT_EQ(queue.size(), 2);
  std::atomic<bool> through{false};
  std::thread producer([&] { through = queue.push(3); });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(through) << "push waits";
  auto loader = numbers(queue, {.workers = 0});
  EXPECT_EQ(*loader->begin(), Numbers{1});
  producer.join();
  EXPECT_TRUE(through) << "until there is room";
}

TEST(SampleQueue, LeavesASampleThatItDidNotTakeAsItWas) {
  SampleQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(second)));
  EXPECT_TRUE(second);
}

TEST(SampleQueue, TakesFromSeveralThreadsAtOnceAndLosesNothing) {
  SampleQueue<int64_t> queue(4);
  auto loader = numbers(queue, {.batch_size = 3, .prefetch = 2});
  std::vector<std::thread> producers;
  std::atomic<int> running{4};
  for (int64_t p = 0; p < 4; ++p)
    producers.emplace_back([&, p] {
      for (int64_t i = 0; i < 250; ++i) EXPECT_TRUE(queue.push(p * 250 + i));
      if (--running == 0) queue.close();
    });
  std::set<int64_t> seen;
  std::vector<int64_t> last(4, -1);
  int64_t count = 0;
  for (auto& batch : *loader)
    for (const int64_t sample : batch) {
      seen.insert(sample);
      ++count;
      EXPECT_GT(sample, std::exchange(last[static_cast<size_t>(sample / 250)], sample)) << "each producer's order is kept";
    }
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(count, 1000);
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(SampleQueue, HandsAProducersExceptionToTheLoaderAfterWhatCameBefore) {
  SampleQueue<int64_t> queue(8);
  auto loader = numbers(queue, {.batch_size = 2});
  std::thread([&] {
    try {
      for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(queue.push(i));
      throw std::out_of_range("the solver diverged");
    } catch (...) {
      queue.fail(std::current_exception());
    }
  }).join();
  std::vector<Numbers> given;
  try {
    for (auto& batch : *loader) given.push_back(batch);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "reading the stream failed in micro-batch 2 of epoch 0: a producer failed after 4 samples of the queue: the "
                 "solver diverged");
    try {
      std::rethrow_if_nested(error);
      FAIL();
    } catch (const Error& inner) {
      EXPECT_THROW(std::rethrow_if_nested(inner), std::out_of_range);
    }
  }
  EXPECT_EQ(given, (std::vector<Numbers>{{0, 1}, {2, 3}}));
  EXPECT_FALSE(queue.push(5)) << "the other producers are told";
  EXPECT_THROW(loader->begin(), Error) << "and the loader again, not an end";
}

TEST(SampleQueue, ThatEndsLetsItsProducersGo) {
  auto queue = std::make_unique<SampleQueue<int64_t>>(1);
  ASSERT_TRUE(queue->push(0));
  std::atomic<int> refused{0}, started{0};
  std::vector<std::thread> producers;
  for (int i = 0; i < 3; ++i)
    producers.emplace_back([&refused, &started, raw = queue.get()] {
      ++started;
      refused += !raw->push(1);
    });
  while (started < 3) std::this_thread::yield();
  std::this_thread::sleep_for(50ms);  // all three wait in push by now
  queue.reset();
  for (auto& producer : producers) producer.join();
  EXPECT_EQ(refused, 3);
}

TEST(SampleQueue, WhoseLoaderEndsLetsItsProducersGo) {
  SampleQueue<int64_t> queue(1);
  auto loader = numbers(queue, {});
  std::thread producer([&] {
    while (queue.push(1)) {
    }
  });
  [[maybe_unused]] auto it = loader->begin();
  loader.reset();
  producer.join();
}

TEST(SampleQueue, DoesNotHoldUpTheEndOfALoaderThatWaitsForIt) {
  SampleQueue<int64_t> queue(4);
  auto loader = numbers(queue, {.batch_size = 2});
  ASSERT_TRUE(queue.push(0));
  ASSERT_TRUE(queue.push(1));
  [[maybe_unused]] auto it = loader->begin();  // its worker now waits for a third sample that never comes
  const auto before = std::chrono::steady_clock::now();
  loader.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
}

TEST(SampleQueue, LosesNothingWhenALoopIsLeftEarly) {
  SampleQueue<int64_t> queue(20);
  auto loader = numbers(queue, {.prefetch = 3});
  for (int64_t i = 0; i < 9; ++i) ASSERT_TRUE(queue.push(i));
  queue.close();
  std::vector<Numbers> given;
  for (auto& batch : *loader) {
    given.push_back(batch);
    if (given.size() == 4) break;
  }
  for (auto& batch : *loader) given.push_back(batch);
  ASSERT_EQ(given.size(), 9u);
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(given[static_cast<size_t>(i)], Numbers{i});
}

// Two epochs of n samples, made by a producer that goes on at position().
void produce(SampleQueue<int64_t>& queue, int64_t n, int64_t count) {
  if (queue.position() % n == 0) queue.end_epoch();
  for (int64_t i = queue.position(); i < count && queue.push(i); ++i)
    if ((i + 1) % n == 0) queue.end_epoch();
  queue.close();
}

TEST(SampleQueue, CountsWhatWasGivenSoThatAProducerGoesOnThere) {
  for (const int64_t n : {6, 7}) {
    std::vector<Numbers> given;
    std::vector<DataCursor> cursors;
    {
      SampleQueue<int64_t> queue(4);
      auto loader = numbers(queue, {.batch_size = 2, .prefetch = 3});
      std::thread producer([&] { produce(queue, n, 2 * n); });
      cursors.push_back(loader->cursor());
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (auto& batch : *loader) {
          given.push_back(batch);
          cursors.push_back(DataCursor::from_dict(loader->cursor().to_dict()));
        }
        EXPECT_EQ(loader->cursor().epoch, epoch + 1);
        if (epoch == 0) cursors.back() = loader->cursor();  // saved between the epochs
      }
      producer.join();
    }
    for (size_t at = 0; at < given.size(); ++at) {
      SCOPED_TRACE(testing::Message() << n << " samples an epoch, resumed at " << at);
      SampleQueue<int64_t> queue(4);
      auto loader = numbers(queue, {.batch_size = 2, .prefetch = 3});
      loader->seek(cursors[at]);
      int64_t expected = 0;
      for (size_t i = 0; i < at; ++i) expected += static_cast<int64_t>(given[i].size());
      EXPECT_EQ(queue.position(), expected);
      std::thread producer([&] { produce(queue, n, 2 * n); });
      std::vector<Numbers> rest;
      while (loader->cursor().epoch < 2)
        for (auto& batch : *loader) rest.push_back(batch);
      EXPECT_EQ(rest, std::vector<Numbers>(given.begin() + static_cast<std::ptrdiff_t>(at), given.end()));
      producer.join();
    }
  }
}

TEST(SampleQueue, RefusesAResumeAfterSamplesWerePushed) {
  SampleQueue<int64_t> queue(4);
  auto loader = numbers(queue, {});
  ASSERT_TRUE(queue.push(0));
  try {
    loader->seek({.micro_batches = 3, .state = Dict{{"samples", 3}, {"in_epoch", true}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("to resume at sample 3"), HasSubstr("1 samples were pushed already")));
  }
}

TEST(SampleQueue, HasOneLoader) {
  SampleQueue<int64_t> queue(4);
  auto loader = numbers(queue, {});
  EXPECT_THROW(numbers(queue, {}), Error);
  loader.reset();
  EXPECT_NO_THROW(numbers(queue, {}));
}

TEST(SampleQueue, MayBeShared) {
  auto queue = std::make_shared<SampleQueue<int64_t>>(4);
  auto loader = numbers(queue, {});
  ASSERT_TRUE(queue->push(3));
  queue.reset();
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{3}})) << "what was pushed is given, though the queue ended";
}

TEST(SampleQueue, RefusesACapacityOfNone) { EXPECT_THROW(SampleQueue<int64_t>(0), Error); }

}  // namespace
}  // namespace gannet
