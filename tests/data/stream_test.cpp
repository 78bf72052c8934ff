#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <optional>
#include <stdexcept>
#include <thread>

#include "data/samples.h"

namespace gannet {
namespace {

// A solver's way: the next sample, or nullopt at an epoch's end; starts over at the call after.
struct Countdown {
  int64_t length = 0, at = 0;
  std::optional<int64_t> operator()() {
    if (at == length) {
      at = 0;
      return std::nullopt;
    }
    return at++;
  }
};

TEST(Stream, OfARangeIsGroupedIntoMicroBatchesInItsOrder) {
  auto loader = numbers(std::list<int64_t>{1, 2, 3, 4, 5}, {.batch_size = 2});
  EXPECT_FALSE(loader->sized());
  EXPECT_EQ(loader->size(), 0);
  const std::vector<Numbers> expected{{1, 2}, {3, 4}, {5}};
  EXPECT_EQ(epoch_of(*loader), expected);
  EXPECT_EQ(epoch_of(*loader), expected) << "the next epoch";
}

TEST(Stream, OfACallableEndsAtNulloptAndStartsOver) {
  for (const int64_t workers : {0, 1, 4}) {
    auto loader = numbers(Countdown{3}, {.batch_size = 2, .workers = workers});
    EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0, 1}, {2}}));
    EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0, 1}, {2}}));
  }
}

TEST(Stream, OfAFactoryIsOpenedOnceAnEpoch) {
  int opened = 0;
  auto loader = numbers(
      [&opened] {
        ++opened;
        return Countdown{2};
      },
      {});
  for ([[maybe_unused]] auto& batch : *loader) break;
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0}, {1}})) << "from its start, though the epoch before was left early";
  EXPECT_EQ(opened, 2);
}

TEST(Stream, LeavesOutAShortLastBatchWithDropLast) {
  EXPECT_EQ(epoch_of(*numbers(Countdown{5}, {.batch_size = 2, .drop_last = true})), (std::vector<Numbers>{{0, 1}, {2, 3}}));
}

TEST(Stream, OfBatchesIsGivenAsItIs) {
  std::list<Numbers> batches{{1, 2, 3}, {4}};
  auto loader = make_loader<Numbers>(Batched(batches), {.batch_size = 2});
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{1, 2, 3}, {4}}));
}

TEST(Stream, OfBatchesRefusesACollateFunctionThatWouldNeverRun) {
  EXPECT_THROW(numbers(Batched(std::list<Numbers>{{1}}), {}), Error);
}

TEST(Stream, IsNotSharded) {
  auto loader = numbers(Countdown{3}, {.rank = 1, .world_size = 2});
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0}, {1}, {2}}));
}

TEST(Stream, LeavesOutMicroBatchesOverAMultipleAndCountsThem) {
  auto loader = numbers(Countdown{8}, {.micro_batches_multiple = 3});
  EXPECT_EQ(epoch_of(*loader).size(), 6u);
  EXPECT_EQ(loader->leftover_micro_batches(), 2);
}

TEST(Stream, ResumesByReadingUpToTheCursor) {
  for (const int64_t multiple : {1, 2}) {
    const LoaderOptions options{.batch_size = 2, .micro_batches_multiple = multiple};
    auto whole = numbers(Countdown{9}, options);
    std::vector<Numbers> given;
    std::vector<DataCursor> cursors{whole->cursor()};
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : *whole) {
        given.push_back(batch);
        cursors.push_back(whole->cursor());
      }
    for (size_t at = 0; at < given.size(); ++at) {
      auto resumed = numbers(Countdown{9}, options);
      resumed->seek(cursors[at]);
      RepeatingLoader endless(resumed);
      for (size_t i = at; i < given.size(); ++i) EXPECT_EQ(endless.next(), given[i]) << "resumed at " << at << ", batch " << i;
    }
  }
}

TEST(Stream, SaysWhichMicroBatchFailed) {
  auto fail = [count = 0]() mutable -> std::optional<int64_t> {
    if (++count == 4) throw std::runtime_error("the solver diverged");
    return count;
  };
  auto loader = numbers(fail, {.batch_size = 2});
  try {
    epoch_of(*loader);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "reading the stream failed in micro-batch 1 of epoch 0: the solver diverged");
  }
}

TEST(Stream, ThatIsEmptyIsAnErrorOfTheRepeatingLoaderNotASpin) {
  RepeatingLoader endless(numbers(Countdown{0}, {}));
  EXPECT_THROW(endless.next(), Error);
}

}  // namespace
}  // namespace gannet
