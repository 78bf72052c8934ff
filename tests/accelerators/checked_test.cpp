// The checked device: LibTorch's tensors on it, the memory that the host cannot read, and the races that it reports.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <csignal>
#include <numeric>
#include <thread>

#include "accelerators/checked_device.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// ---- The device ------------------------------------------------------------------------------------------------------

TEST_F(CheckedDevice, IsADeviceOfItsOwn) {
  EXPECT_EQ(checked->name(), "checked");
  EXPECT_EQ(checked->plugin_device(), "checked");
  EXPECT_EQ(checked->default_comm(), "checked");
  EXPECT_EQ(checked->device(0).torch_device_type, static_cast<int>(c10::DeviceType::PrivateUse1));
  for (const auto capability : {GANNET_ACCELERATOR_QUEUES, GANNET_ACCELERATOR_STREAMS, GANNET_ACCELERATOR_SEPARATE_MEMORY,
                                GANNET_ACCELERATOR_PINNED_MEMORY, GANNET_ACCELERATOR_BF16})
    EXPECT_TRUE(checked->has(capability));
  EXPECT_EQ(torch::ones({2}, kChecked).device().str(), "checked:0");
  EXPECT_NE(default_stream(), nullptr);
  EXPECT_NE(default_stream(), handle(stream_of_pool()));
}

TEST_F(CheckedDevice, SaysWhatItsParametersSay) {
  const Opened three("checked", Dict{{"device_count", 3}, {"memory_bytes", 1 << 20}});
  EXPECT_EQ(three.accelerator.device_count(), 3u);
  EXPECT_EQ(three.accelerator.device(2).memory_bytes, uint64_t{1} << 20);
  EXPECT_EQ(three.accelerator.device(2).free_bytes, uint64_t{1} << 20);
  EXPECT_EQ(error_of([] { Opened("checked", Dict{{"device_count", 9}}); }).code(), ErrorCode::kConfig);
  const at::Tensor there = torch::full({3}, 2.0, c10::Device(c10::DeviceType::PrivateUse1, 2));
  EXPECT_EQ(there.device().index(), 2);
  EXPECT_EQ(there.sum().item<float>(), 6.f);
}

struct ThreadOf : torch::autograd::Function<ThreadOf> {
  static inline std::thread::id thread;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    thread = std::this_thread::get_id();
    return {grads[0] * 2};
  }
};

TEST_F(CheckedDevice, BackwardRunsInAThreadOfTheDevices) {
  const at::Tensor x = torch::ones({3}, at::TensorOptions().device(kChecked).requires_grad(true));
  ThreadOf::apply(x).sum().backward();
  EXPECT_NE(ThreadOf::thread, std::this_thread::get_id());
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({3}, 2.f)));
  EXPECT_EQ(x.grad().device(), kChecked);
}

TEST_F(CheckedDevice, RandomNumbersComeFromItsOwnGenerator) {
  const auto draw = [&](uint64_t seed) {
    torch::manual_seed(seed);
    torch::rand({3});  // the CPU's numbers
    return std::pair(torch::randn({8}, kChecked).cpu(), torch::dropout(torch::ones({64}, kChecked), 0.5, true).cpu());
  };
  const auto one = draw(1), again = draw(1), other = draw(2);
  EXPECT_TRUE(torch::equal(one.first, again.first));
  EXPECT_TRUE(torch::equal(one.second, again.second));
  EXPECT_FALSE(torch::equal(one.first, other.first));
  torch::manual_seed(1);
  const at::Tensor undisturbed = torch::rand({3});
  torch::manual_seed(1);
  torch::dropout(torch::ones({64}, kChecked), 0.5, true);
  EXPECT_TRUE(torch::equal(torch::rand({3}), undisturbed));
}

TEST_F(CheckedDevice, ThreadsThatDrawLeaveTheHostsNumbersAlone) {
  torch::manual_seed(3);
  const at::Tensor expected = torch::rand({3});
  torch::manual_seed(3);
  const at::Tensor there = torch::ones({1000}, kChecked);
  const auto draw = [&] {
    for (int i = 0; i < 50; ++i) torch::dropout(there, 0.5, true);
  };
  checked->synchronize(0);
  std::thread other(draw);
  draw();
  other.join();
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
}

TEST_F(CheckedDevice, TensorsOfTheHostAreRefusedAmongItsOwn) {
  const at::Tensor there = torch::ones({3}, kChecked);
  EXPECT_THAT(message_of([&] { torch::addcmul(there, torch::ones({3}), there); }),
              HasSubstr("all tensors to be on the same device"));
  EXPECT_EQ((there + torch::tensor(1.f)).sum().item<float>(), 6.f) << "a number may be";
}

// ---- Memory ----------------------------------------------------------------------------------------------------------

TEST_F(CheckedDevice, MemoryIsAsMuchAsTheParameterSays) {
  const Opened small("checked", Dict{{"memory_bytes", 1 << 20}});
  {
    const at::Tensor half = torch::empty({1 << 17}, kChecked);
    EXPECT_EQ(small.accelerator.device(0).free_bytes, uint64_t{1} << 19);
    try {
      torch::empty({1 << 18}, kChecked);
      FAIL() << "there is no memory for it";
    } catch (const c10::OutOfMemoryError& error) {
      EXPECT_THAT(error.what(), HasSubstr("1048576 bytes were asked for, 524288 of its 1048576 bytes are free"));
    }
  }
  EXPECT_NO_THROW(torch::empty({1 << 18}, kChecked));
}

TEST_F(CheckedDevice, FreshMemoryIsNotANumber) {
  EXPECT_TRUE(torch::isnan(torch::empty({100}, kChecked)).all().item<bool>());
  EXPECT_TRUE(torch::isnan(torch::empty({100}, at::TensorOptions().device(kChecked).dtype(at::kBFloat16))).all().item<bool>());
}

TEST_F(CheckedDevice, PinnedTensorsAreKnown) {
  const at::Tensor pinned = torch::ones({5}).pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(torch::ones({5}).is_pinned());
  EXPECT_TRUE(torch::equal(pinned.to(kChecked, true).cpu(), pinned));
  std::vector<char> memory(300);
  const auto pin = [&](int offset, uint64_t bytes) {
    plugin::ErrorBuffer error;
    checked->api()->pin(checked->self(), memory.data() + offset, bytes, error);
    return error.message();
  };
  const Pin middle = checked->pin(memory.data() + 100, 100);
  for (const auto& [offset, bytes] : {std::pair<int, uint64_t>{100, 100}, {0, 101}, {199, 1}, {50, 200}, {120, 10}})
    EXPECT_THAT(pin(offset, bytes), HasSubstr("pinned already"));
}

using CheckedDeviceDeathTest = CheckedDevice;
TEST_F(CheckedDeviceDeathTest, AHostReadOfItsMemoryEndsTheProcessWithAName) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const at::Tensor there = torch::ones({10, 10}, kChecked);
  const auto* values = there.const_data_ptr<float>();
  EXPECT_EXIT(
      { std::fprintf(stderr, "%f", static_cast<double>(*const_cast<volatile const float*>(values + 3))); },
      testing::KilledBySignal(SIGABRT),
      AllOf(HasSubstr("checked device: the host uses device memory"), HasSubstr("byte 12 of allocation"), HasSubstr("400 bytes"),
            HasSubstr("Float [10, 10]")));
}

// ---- Races -----------------------------------------------------------------------------------------------------------

using Floats = std::vector<float>;

TEST_F(CheckedDevice, AWriteThatDoesNotWaitForACopyIsReportedWithBothSides) {
  const at::Tensor there = torch::ones({1000}, kChecked);
  Floats target(1000);
  Queue queue = checked->make_queue("gradients");
  queue.wait_stream(default_stream());
  queue.copy(target.data(), there.data_ptr(), 4000);
  EXPECT_EQ(target, Floats(1000, 1.f));
  EXPECT_THAT(message_of([&] { there.slice(0, 100, 200).fill_(2); }),
              AllOf(HasSubstr("'aten::fill_.Scalar' on stream 0 of device 0 writes bytes that 'a copy to the host' on queue "
                              "'gradients' reads, and nothing orders the two: bytes [400, 800) of allocation"),
                    HasSubstr("4000 bytes, Float [1000]")));
  races_expected = 1;
}

TEST_F(CheckedDevice, ACopyThatDoesNotWaitForComputeIsReported) {
  const at::Tensor there = torch::zeros({1000}, kChecked);
  checked->synchronize(0);
  there.fill_(1);
  Floats target(1000);
  Queue queue = checked->make_queue("gradients");
  EXPECT_THAT(error_of([&] { queue.copy(target.data(), there.data_ptr(), 4000); }).message(),
              AllOf(HasSubstr("'a copy to the host' on queue 'gradients' reads"), HasSubstr("'aten::fill_.Scalar' on stream 0")));
  races_expected = 1;
}

TEST_F(CheckedDevice, EventsOrderAQueueAndAStream) {
  const at::Tensor there = torch::ones({1000}, kChecked);
  Floats target(1000);
  Queue queue = checked->make_queue("gradients");
  for (int round = 0; round < 3; ++round) {
    queue.wait_stream(default_stream());
    queue.copy(target.data(), there.data_ptr(), 4000);
    queue.record().block(default_stream());
    there.fill_(round);
  }
  queue.wait_stream(default_stream());
  queue.copy(target.data(), there.data_ptr(), 4000);
  queue.record().wait();
  there.fill_(7);
  EXPECT_EQ(target, Floats(1000, 2.f));
}

TEST_F(CheckedDevice, StreamsAreOrderedByEventsAndNotByTime) {
  const at::Tensor there = torch::zeros({10}, kChecked);
  const c10::Stream other = stream_of_pool();
  c10::Event event(kChecked.type());
  {
    const c10::StreamGuard guard(other);
    EXPECT_THAT(message_of([&] { there.add_(1); }),
                AllOf(HasSubstr("'aten::add.out'"), HasSubstr("on stream " + std::to_string(other.id()) + " of device 0 writes"),
                      HasSubstr("on stream 0 of device 0 writes"), HasSubstr("Float [10]")));
  }
  races_expected = 1;
  event.record(other);
  event.block(c10::Stream(c10::Stream::DEFAULT, kChecked));
  EXPECT_NO_THROW(there.add_(1));
}

TEST_F(CheckedDevice, AFreeIsAWriteUnlessTheStreamIsRecorded) {
  const c10::Stream other = stream_of_pool();
  for (const bool recorded : {true, false}) {
    at::Tensor there = torch::zeros({10}, kChecked);
    c10::Event event(kChecked.type());
    event.record(c10::Stream(c10::Stream::DEFAULT, kChecked));
    event.block(other);
    {
      const c10::StreamGuard guard(other);
      there.sum();
    }
    if (recorded) there.record_stream(other);
    there = at::Tensor();
    const std::string next = message_of([&] { torch::zeros({3}, kChecked); });
    if (recorded)
      EXPECT_EQ(next, "nothing was thrown");
    else
      EXPECT_THAT(next, AllOf(HasSubstr("'free' on stream 0 of device 0 writes"), HasSubstr("'aten::sum")));
  }
  races_expected = 1;
}

TEST_F(CheckedDevice, PinnedMemoryThatAQueueStillFillsMayNotBeGivenBack) {
  const at::Tensor there = torch::ones({100}, kChecked);
  Queue queue = checked->make_queue("gradients");
  at::Tensor target = torch::empty({100}, at::TensorOptions().pinned_memory(true));
  queue.wait_stream(default_stream());
  queue.copy(target.data_ptr(), there.data_ptr(), 400);
  target = at::Tensor();
  EXPECT_THAT(message_of([&] { torch::zeros({3}, kChecked); }),
              AllOf(HasSubstr("'free' on the host writes"), HasSubstr("'a copy to the host' on queue 'gradients' writes"),
                    HasSubstr("pinned host memory of 400 bytes")));
  races_expected = 1;
}

// LibTorch's own pinned memory lives until its pending copies are over, even if they are not
// awaited.
TEST_F(CheckedDevice, PinnedMemoryOfLibTorchsMayGoBehindItsCopy) {
  const at::Tensor there = torch::ones({100}).pin_memory().to(kChecked, /*non_blocking=*/true);
  EXPECT_EQ(there.sum().item<float>(), 100.f);
}

TEST_F(CheckedDevice, CountsWhatItIsGiven) {
  const at::Tensor x = torch::ones({10}, kChecked);
  const auto before = counters();
  const at::Tensor y = x + x;
  EXPECT_EQ(counters().at("launches"), before.at("launches") + 1);
  EXPECT_EQ(counters().at("allocations"), before.at("allocations") + 1);
  EXPECT_EQ(counters().at("host_waits"), before.at("host_waits"));
  y.sum().item();
  EXPECT_EQ(counters().at("host_waits"), before.at("host_waits") + 1);
}

}  // namespace
}  // namespace gannet::test
