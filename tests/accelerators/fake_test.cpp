// The fake device: its parameters, and that its queues and events are real.
#include <gmock/gmock.h>

#include <chrono>
#include <numeric>

#include "accelerators/opened.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<char>;

TEST(FakeAccelerator, IsADeviceOfCpuMemoryThatTheCpusPluginsServe) {
  Opened fake("fake");
  EXPECT_EQ(fake->name(), "fake");
  EXPECT_EQ(fake->plugin_device(), "cpu");
  EXPECT_EQ(fake->device_count(), 1u);
  EXPECT_EQ(fake->device(0).torch_device_type, 0);
  EXPECT_EQ(fake->default_comm(), "fake");
  EXPECT_TRUE(fake->has(GANNET_ACCELERATOR_QUEUES));
  EXPECT_TRUE(fake->has(GANNET_ACCELERATOR_SEPARATE_MEMORY));
  EXPECT_FALSE(fake->has(GANNET_ACCELERATOR_STREAMS));
  Opened cpu("cpu");
  EXPECT_EQ(cpu->plugin_device(), "cpu");
  EXPECT_FALSE(cpu->has(GANNET_ACCELERATOR_QUEUES));
  EXPECT_FALSE(cpu->has(GANNET_ACCELERATOR_SEPARATE_MEMORY));
}

TEST(FakeAccelerator, SaysWhatItsParametersSay) {
  Opened fake("fake", Dict{{"device_count", 3}, {"memory_bytes", 1 << 20}});
  EXPECT_EQ(fake->device_count(), 3u);
  EXPECT_EQ(fake->device(2).memory_bytes, uint64_t{1} << 20);
  EXPECT_LE(fake->device(2).free_bytes, uint64_t{1} << 20);
  EXPECT_GT(fake->device(2).free_bytes, 0u);
  EXPECT_GT(Opened("fake")->device(0).memory_bytes, uint64_t{1} << 20);
  EXPECT_THROW(fake->device(3), Error);
  EXPECT_NO_THROW(fake->make_queue("copy", 2));
  for (uint32_t local_rank = 0; local_rank < 3; ++local_rank) EXPECT_EQ(fake->device_of(local_rank), local_rank);
  const auto refused = error_of([&] { fake->device_of(3); });
  EXPECT_EQ(refused.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("local rank 3 has no device of its own: accelerator 'fake' has 3"));
  EXPECT_EQ(Opened("fake")->device_of(3), 0u) << "each task sees one device, as Slurm gives it";
  EXPECT_EQ(error_of([] { Opened("fake", Dict{{"device_count", 0}}); }).code(), ErrorCode::kConfig);
  EXPECT_EQ(error_of([] { Opened("fake", Dict{{"delay_us", -1}}); }).code(), ErrorCode::kConfig);
}

// 10 kB at 100 kB/s: no sleep is shorter than it was told to be.
TEST(FakeAccelerator, CopiesTakeTheTimeOfItsBusAndNoEventIsOverBefore) {
  Opened fake("fake", Dict{{"bytes_per_second", 100000}});
  const Bytes source(10000, 'a');
  Bytes target(source.size());
  Queue queue = fake->make_queue("copy");
  const auto begin = Clock::now();
  const Event before = queue.record();
  queue.copy(target.data(), source.data(), source.size());
  const Event after = queue.record();
  before.wait();
  after.wait();
  EXPECT_GE(Clock::now() - begin, 100ms);
  EXPECT_EQ(target, source);
}

TEST(FakeAccelerator, TheCallerGoesOnWhileAQueueWorks) {
  Opened fake("fake", Dict{{"bytes_per_second", 20000}});
  const Bytes source(10000, 'a');
  Bytes target(source.size());
  Queue queue = fake->make_queue("copy");
  queue.copy(target.data(), source.data(), source.size());  // half a second
  const Event event = queue.record();
  EXPECT_FALSE(event.is_over());
  const auto begin = Clock::now();
  {
    Queue other = fake->make_queue("other");
    other.synchronize();  // queues do not wait for each other unless told
  }
  EXPECT_LT(Clock::now() - begin, 400ms);
  EXPECT_FALSE(event.is_over());
  event.wait();
  EXPECT_TRUE(event.is_over());
}

TEST(FakeAccelerator, QueuesOverlap) {
  Opened fake("fake", Dict{{"bytes_per_second", 20000}});
  const Bytes source(10000, 'a');
  std::vector<Bytes> targets(4, Bytes(source.size()));
  const auto begin = Clock::now();
  {
    std::vector<Queue> queues;
    for (auto& target : targets) {
      queues.push_back(fake->make_queue("copy"));
      queues.back().copy(target.data(), source.data(), source.size());
    }
  }
  EXPECT_LT(Clock::now() - begin, 1500ms);  // 2 s one after the other
  EXPECT_THAT(targets, Each(source));
}

// ---- Failures --------------------------------------------------------------------------------------------------------

TEST(FakeAccelerator, AFailedCopyIsToldByEveryEventBehindItAndTheRestIsSkipped) {
  Opened fake("fake", Dict{{"failing_copy", 2}, {"delay_us", 500}});
  const Bytes source(100, 'a'), untouched(100, '-');
  Bytes one = untouched, two = untouched, three = untouched;
  CapturedLog log;
  {
    Queue queue = fake->make_queue("weights");
    queue.copy(one.data(), source.data(), one.size());
    const Event good = queue.record();
    queue.copy(two.data(), source.data(), two.size());
    const Event bad = queue.record();
    queue.copy(three.data(), source.data(), three.size());
    const Event worse = queue.record();
    EXPECT_NO_THROW(good.wait());
    for (const Event* event : {&bad, &worse}) {
      const Error error = error_of([&] { event->wait(); });
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("accelerator plugin fake"), HasSubstr("copy 2 of queue 'weights', of 100 bytes, failed")));
      EXPECT_THROW(event->is_over(), Error);
      EXPECT_THROW(event->block(nullptr), Error);
    }
    EXPECT_NO_THROW(good.wait());
    EXPECT_THROW(fake->synchronize(0), Error);
  }
  EXPECT_EQ(one, source);
  EXPECT_EQ(two, untouched);
  EXPECT_EQ(three, untouched);
  EXPECT_EQ(log.text(), "");  // it was told
}

TEST(FakeAccelerator, AQueueThatWaitsForAFailedOneFailsWithIt) {
  Opened fake("fake", Dict{{"failing_copy", 2}});
  const Bytes source(100, 'a'), untouched(100, '-');
  Bytes staging = untouched, target = untouched;
  Queue in = fake->make_queue("in"), out = fake->make_queue("out");
  in.copy(staging.data(), source.data(), staging.size());
  in.copy(staging.data(), source.data(), staging.size());
  out.wait(in.record());
  out.copy(target.data(), staging.data(), target.size());
  EXPECT_THAT(error_of([&] { out.synchronize(); }).message(), HasSubstr("copy 2 of queue 'in'"));
  EXPECT_EQ(target, untouched);
}

TEST(FakeAccelerator, AFailureThatNobodyAskedForIsLogged) {
  Opened fake("fake", Dict{{"failing_copy", 1}});
  Bytes source(100, 'a'), target(100);
  CapturedLog log;
  {
    Queue queue = fake->make_queue("gradients");
    queue.copy(target.data(), source.data(), target.size());
  }
  EXPECT_THAT(log.text(), AllOf(HasSubstr("queue 'gradients' of the fake device ended with a failure that was never queried"),
                                HasSubstr("copy 1")));
}

TEST(FakeAccelerator, PinningTwiceIsRefusedAsADriverWould) {
  Opened fake("fake");
  Bytes memory(300);
  {
    const Pin middle = fake->pin(memory.data() + 100, 100);
    for (const auto& [offset, bytes] : {std::pair<int, uint64_t>{100, 100}, {0, 101}, {199, 1}, {50, 200}, {120, 10}}) {
      plugin::ErrorBuffer error;
      EXPECT_EQ(fake->api()->pin(fake->self(), memory.data() + offset, bytes, error), GANNET_INVALID_ARGUMENT);
      EXPECT_THAT(error.message(), HasSubstr("pinned already"));
    }
    const Pin left = fake->pin(memory.data(), 100), right = fake->pin(memory.data() + 200, 100);
  }
  EXPECT_NO_THROW(fake->pin(memory.data(), 300));
  plugin::ErrorBuffer error;
  EXPECT_EQ(fake->api()->unpin(fake->self(), memory.data(), error), GANNET_INVALID_ARGUMENT);
  EXPECT_THAT(error.message(), HasSubstr("no pinned memory begins at this address"));
}

// A machine may refuse to lock memory (ulimit -l): copies are slower then, and training continues.
TEST(FakeAccelerator, MemoryThatCannotBePinnedIsOneWarning) {
  Opened fake("fake");
  Bytes memory(300);
  const Pin held = fake->pin(memory.data(), 300);
  const CapturedLog log;
  {
    const Pin refused = fake->pin(memory.data(), 100), again = fake->pin(memory.data() + 100, 100);
  }
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("host memory stays pageable"));
  EXPECT_EQ(text.find("host memory stays pageable"), text.rfind("host memory stays pageable")) << text;
}

}  // namespace
}  // namespace gannet::test
