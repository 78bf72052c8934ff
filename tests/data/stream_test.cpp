#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

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

// ---- Streams with a state of their own: what was given is not read again ----------------------------------------------

struct Reads {
  int64_t items = 0, seeks = 0;
};

// A callable whose epochs of `length` go on counting, as a simulator's random numbers would.
struct Simulator {
  int64_t length = 0;
  std::shared_ptr<Reads> reads = std::make_shared<Reads>();
  int64_t at = 0;
  bool ends = false;
  std::optional<int64_t> operator()() {
    if (ends) {
      ends = false;
      return std::nullopt;
    }
    ++reads->items;
    ends = (at + 1) % length == 0;
    return at++;
  }
  Value cursor() const { return Dict{{"at", at}, {"ends", ends}}; }
  void seek(const Value& where) {
    ++reads->seeks;
    at = where.at("at").as_int();
    ends = where.at("ends").as_bool();
  }
};

// A range that reads `length` items, from the first unless seek() said otherwise.
struct Lines {
  int64_t length = 0;
  std::shared_ptr<Reads> reads = std::make_shared<Reads>();
  int64_t start = 0, at = 0;
  struct Iterator {
    Lines* lines;
    int64_t operator*() const { return lines->at - 1; }
    Iterator& operator++() {
      lines->read();
      return *this;
    }
    bool operator!=(std::default_sentinel_t) const { return lines->at <= lines->length; }
  };
  void read() {
    ++at;
    ++reads->items;
  }
  Iterator begin() {
    at = std::exchange(start, 0);
    read();
    return {this};
  }
  std::default_sentinel_t end() const { return {}; }
  Value cursor() const { return std::min(at, length); }
  void seek(const Value& where) {
    ++reads->seeks;
    start = where.as_int();
  }
};

// Opens an epoch of its own at each call.
struct Files {
  int64_t length = 0;
  std::shared_ptr<Reads> reads = std::make_shared<Reads>();
  struct Open {
    int64_t length;
    std::shared_ptr<Reads> reads;
    int64_t at = 0;
    std::optional<int64_t> operator()() {
      ++reads->items;
      return at < length ? std::optional(at++) : std::nullopt;
    }
    Value cursor() const { return at; }
    void seek(const Value& where) {
      ++reads->seeks;
      at = where.as_int();
    }
  };
  Open operator()() { return {length, reads}; }
};

template <class S>
class StreamWithState : public testing::Test {};
using StreamsWithState = testing::Types<Simulator, Lines, Files>;
TYPED_TEST_SUITE(StreamWithState, StreamsWithState);

TYPED_TEST(StreamWithState, ResumesExactlyWithoutReadingAgain) {
  for (const int64_t length : {8, 9})  // ends with a batch, or within one
    for (const int64_t multiple : {1, 2})
      for (const int64_t workers : {0, 1}) {
        const LoaderOptions options{.batch_size = 2, .workers = workers, .prefetch = 3, .micro_batches_multiple = multiple};
        auto whole = numbers(TypeParam{length}, options);
        std::vector<Numbers> given;
        std::vector<DataCursor> cursors{whole->cursor()};
        for (int epoch = 0; epoch < 3; ++epoch)
          for (auto& batch : *whole) {
            given.push_back(batch);
            cursors.push_back(DataCursor::from_dict(whole->cursor().to_dict()));
          }
        cursors.pop_back();
        for (size_t at = 0; at < cursors.size(); ++at) {
          SCOPED_TRACE(testing::Message() << "length " << length << ", multiple " << multiple << ", workers " << workers
                                          << ", resumed at " << at << ": " << Value(cursors[at].to_dict()).to_json());
          TypeParam stream{length};
          const auto reads = stream.reads;
          {
            auto resumed = numbers(std::move(stream), options);
            resumed->seek(cursors[at]);
            RepeatingLoader endless(resumed);
            for (size_t i = at; i < given.size(); ++i) ASSERT_EQ(endless.next(), given[i]) << "batch " << i;
            EXPECT_EQ(resumed->cursor().epoch, 2);
          }
          const int64_t needed = 2 * static_cast<int64_t>(given.size() - at);
          EXPECT_LE(reads->items, needed + 2 * (3 + 2) * multiple + 3) << "reads ahead, but nothing twice";
        }
      }
}

TEST(StreamWithState, CursorIsThatOfTheLastBatchGivenNotOfWhatWorkersRead) {
  auto loader = numbers(Simulator{100}, {.batch_size = 2, .prefetch = 5});
  auto it = loader->begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(loader->cursor().state, Value(Dict{{"at", 2}, {"ends", false}}));
  ++it;
  EXPECT_EQ(loader->cursor().state, Value(Dict{{"at", 4}, {"ends", false}}));
}

TEST(StreamWithState, ThatNothingStartsAnewGoesOnAfterABreak) {
  auto loader = numbers(Simulator{10}, {.batch_size = 2, .prefetch = 2});
  for ([[maybe_unused]] auto& batch : *loader) break;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{2, 3}, {4, 5}, {6, 7}, {8, 9}})) << "and what was ready is not lost";
  for (auto& batch : *loader)
    if (batch.back() == 19) break;
  EXPECT_EQ(epoch_of(*loader).front(), (Numbers{20, 21})) << "left at its very end: the next epoch, not an empty loop";
}

TEST(StreamWithState, OfARangeStartsAnewAfterABreak) {
  auto loader = numbers(Lines{6}, {.batch_size = 2});
  for ([[maybe_unused]] auto& batch : *loader) break;
  EXPECT_EQ(epoch_of(*loader), (std::vector<Numbers>{{0, 1}, {2, 3}, {4, 5}}));
}

TEST(StreamWithState, RefusesTheStateOfAnotherStream) {
  auto loader = numbers(Countdown{3}, {});
  try {
    loader->seek({.micro_batches = 1, .state = 7});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("it has no cursor() and seek()"));
  }
  auto simulator = numbers(Simulator{3}, {});
  try {
    simulator->seek({.micro_batches = 1, .state = 7});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("putting the stream to its cursor 7 failed"));
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
