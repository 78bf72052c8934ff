// Inputs of regions in one buffer for each argument, in memory and on tiers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "activation/blocks.h"
#include "activation/configuration.h"
#include "activation/counted.h"
#include "activation/error_of.h"
#include "activation/input_store.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;
using checkpointing::configure;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kInput = 1 << 20, kRegions = 6;

// "": the device's memory.
class Contiguous : public CountedMemory, public testing::WithParamInterface<const char*> {
 protected:
  void use(int64_t slots) {
    const std::string tier = GetParam();
    const Dict own = tier.empty() ? Dict() : Dict{{"device", tier}, {"nvme_path", folder_.string()}};
    configure({.deepspeed_config = Dict{{"gannet", Dict{{"activation_checkpointing", own}}}},
               .contiguous_checkpointing = true,
               .num_checkpoints = slots,
               .checkpoint_in_cpu = !tier.empty()});
  }
  static uint64_t buffer_bytes() { return activation::in_force()->inputs->contiguous()->bytes(); }
  void TearDown() override { checkpointing::reset(); }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Memory, Contiguous, testing::Values("", "cpu", "nvme"));

TEST_P(Contiguous, GradientsAreThoseOfThePlainRun) {
  const auto plain = gradients_of_blocks(Recompute::kNothing);
  use(5);
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kGroups, Recompute::kBlocks}) {
    const auto found = gradients_of_blocks(recompute);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(found[i], plain[i])) << i;
  }
}

// The buffer is allocated in the first region, and no region needs more; inputs are adjacent.
TEST_P(Contiguous, InputsLieSideBySideInABufferThatIsAllocatedOnce) {
  use(kRegions);
  const at::Tensor x = torch::randn({kInput / 4}, torch::requires_grad());
  std::set<const char*> places;
  bool is_backward = false;
  const auto region = [&](const at::Tensor& x) {
    if (is_backward) places.insert(static_cast<const char*>(x.const_data_ptr()));
    return x.tanh();
  };
  for (int step = 0; step < 2; ++step) {
    is_backward = false;
    const int64_t start = Counting::live;
    at::Tensor y = x * 1;
    y = checkpoint(region, y);
    const int64_t after_one = Counting::live - start;
    EXPECT_EQ(buffer_bytes(), static_cast<uint64_t>(kRegions * kInput));
    if (std::string(GetParam()).empty() && step == 0) EXPECT_GE(after_one, kRegions * kInput);
    for (int64_t i = 1; i < kRegions; ++i) y = checkpoint(region, y);
    EXPECT_LE(Counting::live - start - after_one, 64 << 10) << "no region allocates room of its own";
    is_backward = true;
    y.sum().backward();
    EXPECT_EQ(buffer_bytes(), static_cast<uint64_t>(kRegions * kInput));
  }
  if (std::string(GetParam()) == "nvme") return;  // read into memory, each in turn
  EXPECT_EQ(places.size(), static_cast<size_t>(kRegions));
  EXPECT_EQ(*places.rbegin() - *places.begin(), (kRegions - 1) * kInput);
}

TEST_P(Contiguous, ARegionMoreThanSlotsIsRefused) {
  use(2);
  const at::Tensor x = torch::randn({1000}, torch::requires_grad());
  {
    at::Tensor y = x * 1;
    const Error error = activation_error([&] {
      for (int i = 0; i < 3; ++i) y = checkpoint({.name = "block"}, [](const at::Tensor& x) { return x.tanh(); }, y);
    });
    EXPECT_EQ(error.code(), ErrorCode::kOrder);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("number_checkpoints is 2"), HasSubstr("the region 'block'")));
    EXPECT_THAT(error.next_step(), HasSubstr("set number_checkpoints"));
  }
  // Those that were kept have gone with their graph.
  at::Tensor y = x * 1;
  for (int i = 0; i < 2; ++i) y = checkpoint([](const at::Tensor& x) { return x.tanh(); }, y);
  y.sum().backward();
}

TEST_P(Contiguous, AnotherShapeIsRefusedBetweenRegionsAndTakenBetweenSteps) {
  use(3);
  const auto region = [](const at::Tensor& x) { return x.tanh(); };
  {
    const at::Tensor x = torch::randn({1000}, torch::requires_grad());
    const at::Tensor y = checkpoint(region, x * 1);
    const Error error = activation_error([&] { checkpoint({.name = "pooled"}, region, y.narrow(0, 0, 10).clone()); });
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("1000 elements of Float"), HasSubstr("the region 'pooled' have 10 elements")));
    EXPECT_THAT(activation_error([&] { checkpoint(region, y.to(torch::kDouble)); }).message(), HasSubstr("Double"));
  }
  const at::Tensor x = torch::randn({10}, torch::requires_grad());
  checkpoint(region, x * 1).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), torch::autograd::grad({x.tanh().sum()}, {x})[0]));
}

// An input that a second-order graph has saved outlives the region: its slot is not given to the
// next.
TEST_P(Contiguous, ASlotIsFreeWhenNobodyUsesItsInput) {
  const auto run = [](bool has_region) {
    const auto f = [](const at::Tensor& x) { return x.pow(3); };
    const at::Tensor x = torch::linspace(-1, 1, 50, torch::requires_grad());
    const auto first = [&] {
      const at::Tensor y = has_region ? checkpoint(f, x * 2) : f(x * 2);
      return torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/false, /*create_graph=*/true)[0];
    }();
    const at::Tensor other = torch::full({50}, 7.0, torch::requires_grad());
    const at::Tensor z = has_region ? checkpoint(f, other * 1) : f(other * 1);
    z.sum().backward();
    return torch::autograd::grad({first.square().sum()}, {x})[0];
  };
  const at::Tensor plain = run(false);
  use(2);
  EXPECT_TRUE(at::equal(run(true), plain));
}

}  // namespace
}  // namespace gannet::test
