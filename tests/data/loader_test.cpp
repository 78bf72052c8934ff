#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "data/samples.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The Error that `act` throws.
template <class Act>
Error error_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInternal, "nothing was thrown");
}

int64_t thread_count() {
  int64_t count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

TEST(DataLoader, GivesEverySampleOnceAnEpochAndAnotherOrderInTheNext) {
  auto loader = numbers(Range{10}, {.batch_size = 3, .seed = 1});
  EXPECT_EQ(loader->size(), 4);
  std::vector<std::vector<Numbers>> epochs{epoch_of(*loader), epoch_of(*loader)};
  for (const auto& epoch : epochs) {
    ASSERT_EQ(epoch.size(), 4u);
    EXPECT_EQ(epoch.back().size(), 1u);
    std::set<int64_t> seen;
    for (const Numbers& batch : epoch) seen.insert(batch.begin(), batch.end());
    EXPECT_EQ(seen.size(), 10u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(DataLoader, GivesTheSameOrderWhateverTheNumberOfWorkers) {
  auto jitter = [](size_t index) { std::this_thread::sleep_for(std::chrono::microseconds(index * 37 % 200)); };
  const auto expected = epoch_of(*numbers(Range{41}, {.batch_size = 2, .seed = 3, .workers = 0}));
  for (const int64_t workers : {1, 2, 3, 7, 100})
    EXPECT_EQ(epoch_of(*numbers(Range{41, jitter}, {.batch_size = 2, .seed = 3, .workers = workers, .prefetch = 1})), expected)
        << workers;
}

TEST(DataLoader, NamesItsWorkersBlocksTheirSignalsAndGivesThemOneCore) {
  std::mutex mutex;
  std::string name;
  bool blocked = false, faults_blocked = true;
  int cores = 0;
  auto look = [&](size_t) {
    std::lock_guard lock(mutex);
    char buffer[32] = {};
    pthread_getname_np(pthread_self(), buffer, sizeof buffer);
    name = buffer;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT) && sigismember(&mask, SIGUSR1);
    faults_blocked = sigismember(&mask, SIGSEGV);
    cores = at::get_num_threads();
  };
  epoch_of(*numbers(Range{4, look}, {}));
  EXPECT_EQ(name, "gannet-data");
  EXPECT_TRUE(blocked);
  EXPECT_FALSE(faults_blocked);
  EXPECT_EQ(cores, 1);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_FALSE(sigismember(&mine, SIGTERM)) << "the caller's mask is as it was";
}

TEST(DataLoader, ReadsAheadUpToThePrefetchAndNoFurther) {
  std::atomic<int64_t> read{0};
  auto loader = numbers(Range{100, [&](size_t) { ++read; }}, {.workers = 2, .prefetch = 3});
  auto it = loader->begin();
  for (int i = 0; i < 3000 && read < 7; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(read, 7) << "the one in hand and 2 x 3 ready";
}

TEST(DataLoader, EndsItsThreadsWhenTheLoopIsLeftEarly) {
  const int64_t before = thread_count();
  {
    auto loader = numbers(Range{1000}, {.workers = 3});
    for (auto& batch : *loader)
      if (batch.size() == 1) break;
    EXPECT_EQ(thread_count(), before + 3);
  }
  EXPECT_EQ(thread_count(), before);
}

TEST(DataLoader, StartsTheNextEpochAfterABreak) {
  auto whole = numbers(Range{20}, {.seed = 2}), left = numbers(Range{20}, {.seed = 2});
  epoch_of(*whole);
  for ([[maybe_unused]] auto& batch : *left) break;
  EXPECT_EQ(epoch_of(*left), epoch_of(*whole));
}

TEST(DataLoader, SaysWhichSampleFailedAndGoesOnWithTheNextEpoch) {
  for (const int64_t workers : {0, 2}) {
    bool broken = true;
    auto fail = [&](size_t index) {
      if (broken && index == 5) throw std::runtime_error("file 5.png is truncated");
    };
    auto loader = numbers(Range{8, fail}, {.batch_size = 2, .shuffle = false, .workers = workers});
    std::vector<Numbers> given;
    const Error error = error_of([&] {
      for (auto& batch : *loader) given.push_back(batch);
    });
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sample 5 "), HasSubstr("file 5.png is truncated")));
    EXPECT_EQ(given, (std::vector<Numbers>{{0, 1}, {2, 3}})) << "what comes before it is given";
    broken = false;
    EXPECT_EQ(epoch_of(*loader).size(), 4u);
  }
}

TEST(DataLoader, KeepsTheCauseOfAFailureNestedInTheError) {
  auto loader = numbers(Range{1, [](size_t) { throw std::out_of_range("cause"); }}, {});
  try {
    loader->begin();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
}

TEST(DataLoader, SaysWhichSamplesTheCollateFunctionFailedOn) {
  Collate<Numbers> fail = [](std::vector<int64_t>) -> Numbers { throw std::runtime_error("too long"); };
  auto loader = make_loader<Numbers>(Range{4}, fail, {.batch_size = 2, .shuffle = false});
  EXPECT_STREQ(error_of([&] { loader->begin(); }).what(), "collating samples 0, 1 failed: too long");
}

TEST(DataLoader, RefusesACollateFunctionForOtherSamples) {
  Collate<Numbers> other = [](std::vector<std::string>) { return Numbers(); };
  EXPECT_THAT(error_of([&] { make_loader<Numbers>(Range{4}, other, {}); }).what(),
              AllOf(HasSubstr("takes samples of type std::__cxx11::basic_string"), HasSubstr("the dataset's are long")));
}

TEST(DataLoader, RefusesSamplesWithoutADefaultCollate) {
  EXPECT_THAT(error_of([&] { make_loader<Numbers>(Range{4}); }).what(),
              HasSubstr("give a collate_fn that takes std::vector<long>"));
}

TEST(DataLoader, RefusesImpossibleOptionsInOneSentence) {
  auto refusal = [](int64_t samples, const LoaderOptions& options) {
    return std::string(error_of([&] { numbers(Range{samples}, options); }).what());
  };
  EXPECT_EQ(refusal(4, {.batch_size = 0}), "the loader's batch_size must be at least 1, not 0");
  EXPECT_EQ(refusal(4, {.rank = 2, .world_size = 2}), "the loader's rank must be in 0 .. 1, not 2");
  EXPECT_EQ(refusal(0, {}), "the dataset is empty: its size() is 0");
  EXPECT_THAT(refusal(3, {.batch_size = 4, .drop_last = true}),
              HasSubstr("an epoch would give no micro-batch: 3 samples over 1 ranks"));
  EXPECT_THAT(refusal(3, {.micro_batches_multiple = 4}), HasSubstr("in multiples of 4"));
}

TEST(DataLoader, LeavesOutMicroBatchesOverAMultipleAndCountsThem) {
  auto loader = numbers(Range{22}, {.batch_size = 2, .micro_batches_multiple = 4});
  EXPECT_EQ(loader->size(), 8);
  EXPECT_EQ(loader->leftover_micro_batches(), 3);
  EXPECT_EQ(epoch_of(*loader).size(), 8u);
}

TEST(DataLoader, MovesBatchesToTheDeviceAndLetsWorkersTreatTheirTensors) {
  std::vector<at::Tensor> samples(4, at::full({3}, 1.0));
  LoaderOptions options{.batch_size = 2};
  options.on_worker = [](at::Tensor& tensor) { tensor.add_(1.0); };
  auto on_cpu = make_loader<at::Tensor>(samples, options);
  EXPECT_EQ(on_cpu->begin()->sum().item<double>(), 12.0);
  options.device = at::kMeta;
  auto on_meta = make_loader<at::Tensor>(samples, options);
  for (at::Tensor& batch : *on_meta) EXPECT_TRUE(batch.is_meta());
}

TEST(DataLoader, NamesTheShapesThatCannotBeStacked) {
  std::vector<at::Tensor> samples{at::full({3}, 1.0), at::full({4}, 1.0)};
  auto loader = make_loader<at::Tensor>(samples, {.batch_size = 2, .shuffle = false});
  EXPECT_THAT(error_of([&] { loader->begin(); }).what(),
              AllOf(HasSubstr("Float [3] on cpu in the first"), HasSubstr("Float [4]")));
}

TEST(Cursor, ResumesExactlyFromEveryPositionOfEveryEpoch) {
  for (const int64_t workers : {0, 2}) {
    const LoaderOptions options{.batch_size = 2, .seed = 9, .rank = 1, .world_size = 2, .workers = workers};
    auto whole = numbers(Range{11}, options);
    std::vector<Numbers> given;
    std::vector<DataCursor> cursors{whole->cursor()};
    for (int epoch = 0; epoch < 3; ++epoch)
      for (auto& batch : *whole) {
        given.push_back(batch);
        cursors.push_back(whole->cursor());
      }
    ASSERT_EQ(given.size(), 9u);
    LoaderOptions other = options;
    other.seed = 0;  // the cursor's counts
    for (size_t at = 0; at < given.size(); ++at) {
      auto resumed = numbers(Range{11}, other);
      resumed->seek(cursors[at]);
      RepeatingLoader endless(resumed);
      for (size_t i = at; i < given.size(); ++i) EXPECT_EQ(endless.next(), given[i]) << "resumed at " << at << ", batch " << i;
      EXPECT_EQ(resumed->cursor(), cursors.back());
    }
  }
}

TEST(Cursor, AfterAnEpochIsTheStartOfTheNext) {
  auto loader = numbers(Range{4}, {.seed = 5});
  epoch_of(*loader);
  EXPECT_EQ(loader->cursor(), (DataCursor{.seed = 5, .epoch = 1, .dataset_size = 4, .shuffle = true}));
}

TEST(Cursor, CountsWhatWasGivenNotWhatIsReady) {
  auto loader = numbers(Range{100}, {.batch_size = 2, .world_size = 3, .workers = 2});
  auto it = loader->begin();
  ++it;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(loader->cursor(), (DataCursor{.micro_batches = 2, .samples = 12, .dataset_size = 100, .shuffle = true}));
}

TEST(Cursor, OfAnotherDatasetIsRefused) {
  auto loader = numbers(Range{10}, {});
  EXPECT_THAT(error_of([&] { loader->seek({.micro_batches = 11, .samples = 11}); }).what(),
              HasSubstr("beyond the dataset's 10 samples"));
  EXPECT_THAT(error_of([&] { loader->seek({.micro_batches = 3}); }).what(), HasSubstr("is that of a stream"));
}

TEST(RepeatingLoader, GoesOnWithTheNextEpochWithoutAnEnd) {
  auto once = numbers(Range{3}, {.seed = 4}), repeated = numbers(Range{3}, {.seed = 4});
  std::vector<Numbers> expected = epoch_of(*once);
  for (const Numbers& batch : epoch_of(*once)) expected.push_back(batch);
  std::vector<Numbers> given;
  RepeatingLoader endless(*repeated);
  for (auto& batch : endless) {
    given.push_back(batch);
    if (given.size() == 4) break;
  }
  while (given.size() < 6) given.push_back(endless.next());
  EXPECT_EQ(given, expected);
}

TEST(RepeatingLoader, OfSomethingEmptyIsAnError) {
  std::vector<int> nothing;
  RepeatingLoader endless(nothing);
  EXPECT_THAT(error_of([&] { endless.next(); }).what(), HasSubstr("gave nothing in a whole epoch"));
}

}  // namespace
}  // namespace gannet
