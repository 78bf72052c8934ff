// Inputs of regions on tiers: gradients are those of the plain run, and LibTorch's memory holds at most two regions' inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "activation/blocks.h"
#include "activation/configuration.h"
#include "activation/counted.h"
#include "activation/error_of.h"
#include "activation/input_store.h"
#include "offload/faulty_calls.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;
using checkpointing::configure;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Tiers : public CountedMemory, public testing::WithParamInterface<const char*> {
 protected:
  void use() {
    configure(
        {.deepspeed_config =
             Dict{{"gannet", Dict{{"activation_checkpointing", Dict{{"device", GetParam()}, {"nvme_path", folder_.string()}}}}}},
         .checkpoint_in_cpu = true});
  }
  void TearDown() override { checkpointing::reset(); }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Offload, Tiers, testing::Values("cpu", "nvme"));

TEST_P(Tiers, GradientsAreThoseOfThePlainRun) {
  const auto plain = gradients_of_blocks(Recompute::kNothing);
  use();
  for (const Recompute recompute : {Recompute::kBlocks, Recompute::kGroups})
    for (int round = 0; round < 2; ++round) {
      const auto found = gradients_of_blocks(recompute);
      for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(found[i], plain[i])) << i;
    }
  EXPECT_GE(activation::in_force()->inputs->options().tier->bytes(), 5 * 2 * 12 * 32 * 4);
}

// A chain of regions with an input of 1 MiB each.
TEST_P(Tiers, AtMostTwoRegionsInputsStayInLibTorchsMemory) {
  const int64_t kInput = 1 << 20;
  const at::Tensor x = torch::randn({kInput / 4}, torch::requires_grad());
  const auto peaks = [&] {
    const auto f = [](const at::Tensor& x) { return x.mul(0.9); };  // saves nothing of an element's size
    const auto g = [&](const at::Tensor& x) { return f(x).tanh(); };
    const int64_t start = Counting::live;
    at::Tensor y = x * 1;
    for (int i = 0; i < 10; ++i) y = checkpoint(g, y);
    const double forward = static_cast<double>(Counting::live - start) / kInput;
    Counting::peak = Counting::live.load();
    const int64_t before = Counting::live;
    y.sum().backward();
    const double backward = static_cast<double>(Counting::peak - before) / kInput;
    const_cast<at::Tensor&>(x).mutable_grad().reset();
    return std::pair(forward, backward);
  };
  const auto [kept, kept_peak] = peaks();
  EXPECT_GT(kept, 9.9) << "the inputs, and the result";
  use();
  const auto [moved, moved_peak] = peaks();
  EXPECT_LE(moved, 2.1) << "the result, and what is on its way to a drive";
  EXPECT_LE(moved_peak, kept_peak + 2.1);
}

TEST_P(Tiers, ATensorOfSeveralRegionsIsKeptOnceAndParametersNever) {
  use();
  const at::Tensor weight = torch::randn({256, 256}, torch::requires_grad());
  const at::Tensor memory = torch::randn({256, 256}) * 1;
  const auto run = [&](int regions) {
    at::Tensor y = torch::zeros({256, 256});
    for (int i = 0; i < regions; ++i)
      y = y + checkpoint([](const at::Tensor& m, const at::Tensor& w, const at::Tensor& v) { return (m * w).tanh() * v; }, memory,
                         weight, weight.t());
    return y;
  };
  const auto& tier = *activation::in_force()->inputs->options().tier;
  const auto y = run(4);
  EXPECT_EQ(tier.bytes(), 256 * 256 * 4);
  y.sum().backward();
  const at::Tensor found = weight.grad().clone();
  weight.mutable_grad().reset();
  at::Tensor plain = torch::zeros({256, 256});
  for (int i = 0; i < 4; ++i) plain = plain + (memory * weight).tanh() * weight.t();
  plain.sum().backward();
  EXPECT_TRUE(at::equal(found, weight.grad()));
}

// Sequences of another length each step: 36 units in all, 8 of them at once.
TEST_P(Tiers, ShapesThatChangeTakeNoMoreThanWasInUseAtOnce) {
  use();
  constexpr int64_t kUnit = 50000;
  for (int64_t units = 1; units <= 8; ++units) {
    const at::Tensor x = torch::randn({units * kUnit}, torch::requires_grad());
    checkpoint([](const at::Tensor& x) { return x.tanh(); }, x * 1).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), torch::autograd::grad({x.tanh().sum()}, {x})[0]));
  }
  EXPECT_LE(activation::in_force()->inputs->options().tier->bytes(), static_cast<uint64_t>(2 * 8 * kUnit * 4));
}

// Views with gaps, other dtypes, several backwards, a second order gradient.
TEST_P(Tiers, TensorsComeBackAsTheyWere) {
  const auto run = [](bool has_region) {
    at::Tensor x = torch::linspace(-1, 1, 96, torch::requires_grad());
    const at::Tensor base = (x * 2).view({8, 12});
    const auto f = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& index) {
      EXPECT_FALSE(a.is_contiguous());
      return (a.tanh() * b.exp()).index_select(0, index);
    };
    const at::Tensor a = base.t().narrow(1, 2, 4), b = base.narrow(1, 0, 1).expand({8, 4}).narrow(0, 0, 1),
                     index = torch::tensor({3, 1, 11, 3});
    const at::Tensor y = has_region ? checkpoint(f, a, b, index) : f(a, b, index);
    const auto first = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    (first.pow(2).sum() + y.sum()).backward();
    return torch::stack({first.detach(), x.grad()});
  };
  const at::Tensor plain = run(false);
  use();
  EXPECT_TRUE(at::equal(run(true), plain));
}

// A chunk of unsafe_chunk has a version counter of its own, over the same bytes: its values are another input.
TEST_P(Tiers, InputsWithVersionCountersOfTheirOwnAreKeptApart) {
  const auto gradient = [](bool has_regions) {
    const at::Tensor x = torch::linspace(-1, 1, 64, torch::requires_grad());
    const auto f = [](const at::Tensor& x) { return x.tanh().exp(); };
    const at::Tensor z = (x * 2).add_(0);  // at version 1
    const at::Tensor first = has_regions ? checkpoint(f, z) : f(z);
    const at::Tensor chunk = z.unsafe_chunk(1)[0].sigmoid_();  // its own counter is also at 1
    const at::Tensor second = has_regions ? checkpoint(f, chunk) : f(chunk);
    return torch::autograd::grad({second.sum()}, {x})[0];
  };
  const at::Tensor plain = gradient(false);
  use();
  EXPECT_TRUE(at::equal(gradient(true), plain));
}

TEST_P(Tiers, AnInputThatIsChangedBeforeBackwardIsNoticed) {
  use();
  at::Tensor x = torch::randn({4, 4}, torch::requires_grad()) * 2;
  const at::Tensor y = checkpoint([](const at::Tensor& x) { return x.tanh().exp(); }, x);
  x.mul_(2);
  EXPECT_THAT(activation_error([&] { y.sum().backward(); }).message(), HasSubstr("was changed in place"));
}

TEST_F(CountedMemory, AFullDriveIsSaidByRegion) {
  TemporaryFolder folder;
  configure({.deepspeed_config =
                 Dict{{"gannet", Dict{{"activation_checkpointing", Dict{{"device", "nvme"}, {"nvme_path", folder.string()}}}}}},
             .checkpoint_in_cpu = true});
  {
    at::Tensor y = torch::randn({1 << 18}, torch::requires_grad()) * 1;
    FaultyCalls faults;
    faults.fail("fallocate", ENOSPC, 1);
    const Error full = activation_error([&] {
      for (int i = 0; i < 4; ++i) y = checkpoint({.name = "block"}, [](const at::Tensor& x) { return x.tanh(); }, y);
    });
    EXPECT_EQ(full.code(), ErrorCode::kIo);
    EXPECT_THAT(full.message(), AllOf(HasSubstr("inputs of the region 'block'"), HasSubstr("No space left on device")));
  }
  checkpointing::reset();
}

}  // namespace
}  // namespace gannet::test
