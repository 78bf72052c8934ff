// Requirements on every accelerator's queues, tested on each one whose hardware is present: with
// its own queues (fake, cuda), and without (cpu), where the same calls copy at once.
#include "device/queue.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include <gannet/sdk_accelerator.hpp>
#include <numeric>
#include <thread>

#include "accelerators/every.h"
#include "plugin/handshake.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kNumel = 1000;
constexpr uint64_t kBytes = kNumel * sizeof(float);
using Floats = std::vector<float>;

Floats counted_from(float first) {
  Floats floats(kNumel);
  std::iota(floats.begin(), floats.end(), first);
  return floats;
}

class EveryQueue : public EveryAccelerator {
 protected:
  at::Tensor device_floats() { return at::empty({kNumel}, at::TensorOptions().device(device())); }
};

TEST_P(EveryQueue, CopiesInTheOrderGiven) {
  Queue queue = opened().make_queue("copy");
  at::Tensor first = device_floats(), second = device_floats();
  const Floats one = counted_from(1), two = counted_from(2);
  Floats back_one(kNumel), back_two(kNumel);
  for (int round = 0; round < 10; ++round) {
    queue.copy(first.data_ptr(), one.data(), kBytes);
    queue.copy(second.data_ptr(), first.data_ptr(), kBytes);
    queue.copy(first.data_ptr(), two.data(), kBytes);
    queue.copy(back_one.data(), second.data_ptr(), kBytes);
    queue.copy(back_two.data(), first.data_ptr(), kBytes);
  }
  queue.synchronize();
  EXPECT_EQ(back_one, one);
  EXPECT_EQ(back_two, two);
}

TEST_P(EveryQueue, AnEventPutsAQueueBehindAnother) {
  Queue in = opened().make_queue("in"), out = opened().make_queue("out");
  at::Tensor there = device_floats();
  std::vector<Floats> sources, targets(10, Floats(kNumel));
  for (int round = 0; round < 10; ++round) sources.push_back(counted_from(float(round)));
  for (int round = 0; round < 10; ++round) {  // one buffer on the device: each way waits for the other
    in.copy(there.data_ptr(), sources[round].data(), kBytes);
    out.wait(in.record());
    out.copy(targets[round].data(), there.data_ptr(), kBytes);
    in.wait(out.record());
  }
  out.record().wait();
  EXPECT_EQ(targets, sources);
}

TEST_P(EveryQueue, TheHostReadsBehindAnEvent) {
  Queue queue = opened().make_queue("copy");
  at::Tensor there = device_floats();
  for (int round = 0; round < 5; ++round) {
    Floats source = counted_from(float(round)), target(kNumel);
    queue.copy(there.data_ptr(), source.data(), kBytes);
    const Event source_is_free = queue.record();
    queue.copy(target.data(), there.data_ptr(), kBytes);
    const Event target_is_full = queue.record();
    source_is_free.wait();
    std::fill(source.begin(), source.end(), -1.f);
    while (!target_is_full.is_over()) std::this_thread::yield();
    EXPECT_EQ(target, counted_from(float(round)));
    EXPECT_TRUE(source_is_free.is_over());
    target_is_full.wait();  // again is at once
  }
}

TEST_P(EveryQueue, ComputeAndAQueueWaitForEachOther) {
  Queue queue = opened().make_queue("copy");
  at::Tensor there = device_floats();
  for (int round = 0; round < 10; ++round) {
    Floats saved(kNumel);
    there.fill_(round);
    queue.wait_stream(compute_stream());
    queue.copy(saved.data(), there.data_ptr(), kBytes);
    const Event is_saved = queue.record();
    is_saved.block(compute_stream());
    there.fill_(-1);
    is_saved.wait();
    EXPECT_EQ(saved, Floats(kNumel, float(round)));
  }
}

TEST_P(EveryQueue, GoingAwayItFinishesItsWork) {
  at::Tensor there = device_floats();
  const Floats source = counted_from(3);
  Floats target(kNumel);
  Event last;
  {
    Queue queue = opened().make_queue("copy");
    queue.copy(there.data_ptr(), source.data(), kBytes);
    queue.copy(target.data(), there.data_ptr(), kBytes);
    last = queue.record();
  }
  EXPECT_EQ(target, source);
  EXPECT_TRUE(last.is_over());  // events may outlive their queue
}

TEST_P(EveryQueue, AnEventOfAQueueThatWasGivenNothingIsSoonOver) {
  Queue queue = opened().make_queue("idle");
  queue.copy(nullptr, nullptr, 0);
  queue.record().wait();
  EXPECT_TRUE(Event().is_over());
  Event().wait();
  Event().block(compute_stream());
  queue.wait(Event());
  queue.synchronize();
}

TEST_P(EveryQueue, SynchronizeOfTheDeviceWaitsForQueuesToo) {
  at::Tensor there = device_floats();
  const Floats source = counted_from(4);
  Floats one(kNumel), two(kNumel);
  Queue queue = opened().make_queue("copy"), other = opened().make_queue("other");
  queue.copy(there.data_ptr(), source.data(), kBytes);
  queue.copy(one.data(), there.data_ptr(), kBytes);
  other.copy(two.data(), source.data(), kBytes);
  opened().synchronize(0);
  EXPECT_EQ(one, source);
  EXPECT_EQ(two, source);
}

TEST_P(EveryQueue, ThreadsEachUseTheirOwn) {
  at::Tensor there = device_floats();
  std::vector<Floats> sources, targets(4, Floats(kNumel));
  for (int i = 0; i < 4; ++i) sources.push_back(counted_from(float(i)));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      opened().set_device(0);
      Queue queue = opened().make_queue("of a thread");
      at::Tensor mine = device_floats();
      queue.copy(mine.data_ptr(), sources[i].data(), kBytes);
      queue.copy(targets[i].data(), mine.data_ptr(), kBytes);
      queue.record().wait();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(targets, sources);
}

TEST_P(EveryQueue, PinnedMemoryIsCopiedFromAndMayBePinnedAgain) {
  at::Tensor there = device_floats();
  Floats source = counted_from(5), target(kNumel);
  for (int round = 0; round < 2; ++round) {
    const Pin one = opened().pin(source.data(), kBytes);
    Pin two = opened().pin(target.data(), kBytes);
    Queue queue = opened().make_queue("copy");
    queue.copy(there.data_ptr(), source.data(), kBytes);
    queue.copy(target.data(), there.data_ptr(), kBytes);
    queue.synchronize();
    EXPECT_EQ(target, source);
    const Pin moved = std::move(two);
  }
  EXPECT_NO_THROW(opened().pin(nullptr, 0));
}

TEST_P(EveryQueue, ADeviceThatIsNotThereHasNone) {
  const uint32_t count = opened().device_count();
  if (!opened().has(GANNET_ACCELERATOR_QUEUES)) {  // copies are the host's: any number will do
    const int from = 7;
    int to = 0;
    Queue queue = opened().make_queue("copy", count);
    queue.copy(&to, &from, sizeof(to));
    EXPECT_EQ(to, 7);
    return;
  }
  EXPECT_THAT(error_of([&] { opened().make_queue("copy", count); }).message(),
              HasSubstr("there is no device " + std::to_string(count)));
}

INSTANTIATE_TEST_SUITE_P(Plugins, EveryQueue, kEveryAccelerator, [](const auto& info) { return info.param; });

// ---- Plugins that break the contract ---------------------------------------------------------------------------------

struct Bare : sdk::AcceleratorBase {
  static constexpr std::array<gannet_param_spec, 0> kParams{};
  using AcceleratorBase::AcceleratorBase;
  uint64_t capabilities() const { return 0; }
  uint32_t device_count() const { return 1; }
  void device_info(uint32_t, gannet_device_info&) const {}
};
struct SaysQueues : Bare {
  using Bare::Bare;
  uint64_t capabilities() const { return GANNET_ACCELERATOR_QUEUES; }
};
struct MemoryApart : Bare {
  using Bare::Bare;
  uint64_t capabilities() const { return GANNET_ACCELERATOR_SEPARATE_MEMORY; }
};

template <class Derived>
constexpr gannet_descriptor kDescriptor = sdk::accelerator<Derived>("made_up", GANNET_TIER_STABLE, "", "1.0", "a mistake");

TEST(AcceleratorContract, WhoSaysThatItHasQueuesMustHaveThem) {
  const plugin::Plugin plugin{&kDescriptor<SaysQueues>, "made_up.so", ""};
  const Host host;
  const Error error = error_of([&] { Accelerator(plugin, plugin::parse_params(plugin, {}, {}), host); });
  EXPECT_EQ(error.code(), ErrorCode::kPluginFault);
  EXPECT_THAT(error.message(), HasSubstr("accelerator plugin made_up 1.0 (made_up.so) says that it has queues"));
}

TEST(AcceleratorContract, MemoryOfItsOwnWithoutQueuesIsRefusedWhenAQueueIsNeeded) {
  const plugin::Plugin plugin{&kDescriptor<MemoryApart>, "made_up.so", ""};
  const Host host;
  Accelerator accelerator(plugin, plugin::parse_params(plugin, {}, {}), host);
  EXPECT_EQ(accelerator.plugin_device(), "made_up");
  EXPECT_EQ(error_of([&] { accelerator.make_queue("copy"); }).code(), ErrorCode::kUnsupported);
}

TEST(AcceleratorContract, QueueFunctionsComeAllOrNone) {
  gannet_accelerator_api half = *static_cast<const gannet_accelerator_api*>(kDescriptor<Bare>.api);
  half.queue_create = [](void*, uint32_t, const char*, void**, gannet_error*) -> int32_t { return GANNET_OK; };
  gannet_descriptor descriptor = kDescriptor<Bare>;
  descriptor.api = &half;
  const gannet_descriptor* const table[] = {&descriptor, nullptr};
  plugin::Candidate note;
  note.abi_minor = GANNET_ABI_MINOR;
  note.provides = {"accelerator/made_up"};
  EXPECT_THAT(error_of([&] { plugin::shake_hands(table, note); }).message(), HasSubstr("its function queue_destroy is null"));
}

}  // namespace
}  // namespace gannet::test
