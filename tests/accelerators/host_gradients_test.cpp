// Gradients that travel to host memory during backward: put there, or added to what is there.
#include "grads/host_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "accelerators/every.h"

namespace gannet::test {
namespace {

class HostGradientsTest : public EveryAccelerator {
 protected:
  HostGradients sums(int64_t most_bytes = std::numeric_limits<int64_t>::max()) {
    return HostGradients(opened(), 0, most_bytes, [this] { return compute_stream(); });
  }
  at::Tensor on_device(const at::Tensor& values) { return values.to(device(), /*non_blocking=*/false, /*copy=*/true); }
};

// The order in which a rank's accumulated gradients come: each place is put once, then added to; sums are LibTorch's.
TEST_P(HostGradientsTest, PutsAndAddsInTheOrderGiven) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    HostGradients host = sums();
    const at::Tensor mine = host.allocate(1000, at::kFloat);
    at::Tensor expected = at::empty({1000});
    for (int step = 0; step < 3; ++step) {
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch)
        for (int64_t begin = 0; begin < 1000; begin += 250) {
          const at::Tensor values = at::rand({10, 25}).to(dtype);
          at::Tensor place = expected.narrow(0, begin, 250);
          micro_batch == 0 ? place.copy_(values.flatten()) : place.add_(values.flatten());
          host.take(mine.narrow(0, begin, 250).view({10, 25}), on_device(values), micro_batch > 0);
        }
      host.wait();
      EXPECT_TRUE(at::equal(mine, expected)) << "step " << step << ", " << dtype;
    }
  }
}

// More at once than fits where it lands, several times over.
TEST_P(HostGradientsTest, TakesWhatIsLargerThanItsLandings) {
  constexpr int64_t kNumel = (20 << 20) + 12345;
  HostGradients host = sums();
  const at::Tensor mine = host.allocate(kNumel, at::kFloat), values = at::rand({kNumel});
  const at::Tensor there = on_device(values);
  host.take(mine, there, false);
  for (int i = 0; i < 2; ++i) host.take(mine, there, true);
  host.wait();
  EXPECT_TRUE(at::equal(mine, values + values + values));
}

// A ticket is for the memory that was read: when it has come, others may write there.
TEST_P(HostGradientsTest, ATicketFreesTheDevicesMemory) {
  HostGradients host = sums();
  const at::Tensor mine = host.allocate(4 * 1000, at::kFloat);
  const at::Tensor buffer = on_device(at::zeros({1000}));
  for (int64_t i = 0; i < 4; ++i) {
    buffer.fill_(static_cast<double>(i));
    host.wait(host.take(mine.narrow(0, i * 1000, 1000), buffer, false));
  }
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(mine[i * 1000 + 999].item<float>(), static_cast<float>(i));
}

TEST_P(HostGradientsTest, HoldsNoMoreOfTheDevicesMemoryThanIsAllowed) {
  HostGradients host = sums(/*most_bytes=*/2 * 4000);
  const at::Tensor mine = host.allocate(10 * 1000, at::kFloat);
  std::vector<at::Tensor> given;
  for (int64_t i = 0; i < 10; ++i) {
    given.push_back(on_device(at::rand({1000})));
    host.take(mine.narrow(0, i * 1000, 1000), given.back(), false);
    const auto held =
        std::count_if(given.begin(), given.end(), [](const at::Tensor& one) { return one.storage().use_count() > 1; });
    EXPECT_LE(held, 2) << "after " << i + 1;
  }
  host.wait();
  for (int64_t i = 0; i < 10; ++i) EXPECT_TRUE(at::equal(mine.narrow(0, i * 1000, 1000), given[static_cast<size_t>(i)].cpu()));
}

INSTANTIATE_TEST_SUITE_P(Plugins, HostGradientsTest, kEveryAccelerator, [](const auto& info) { return info.param; });

// A failed copy is an error where it is awaited, and the memory of the other copies lives until
// they are over.
TEST(HostGradientsOnTheFake, ACopyThatFailsIsAnErrorWhereItIsAwaited) {
  Opened fake("fake", Dict{{"failing_copy", 2}, {"delay_us", 500}});
  HostGradients host(fake.accelerator, 0, 1 << 20, [] { return nullptr; });
  const at::Tensor mine = host.allocate(300, at::kFloat);
  EXPECT_THROW(
      {
        for (int64_t i = 0; i < 3; ++i) host.take(mine.narrow(0, i * 100, 100), at::rand({100}), false);
        host.wait();
      },
      Error);
}

}  // namespace
}  // namespace gannet::test
