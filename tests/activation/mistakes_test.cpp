// Regions that cannot be computed again as they were, and what is said of them.
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>

#include "activation/blocks.h"
#include "activation/saved_tensors.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;
using ::testing::HasSubstr;

template <class F>
Error error_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("there was no error");
}

at::Tensor matrix() { return torch::randn({4, 4}, torch::requires_grad()); }

TEST(CheckpointMistakes, ARegionThatChangesItsInput) {
  const Error error = error_of([] {
    checkpoint(
        {.name = "attention"}, [](const at::Tensor&, at::Tensor x) { return x.relu_().tanh(); }, at::Tensor(), matrix() * 2);
  });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.message(), HasSubstr("the region 'attention' changes its input tensor 2 in place"));
  EXPECT_THAT(error.next_step(), HasSubstr("a clone"));
}

TEST(CheckpointMistakes, AnInputThatIsChangedBeforeBackward) {
  at::Tensor x = matrix() * 2;
  const at::Tensor y = checkpoint([](const at::Tensor& x) { return x.tanh().exp(); }, x);
  x.mul_(2);
  const Error error = error_of([&] { y.sum().backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kOrder);
  EXPECT_THAT(error.message(), HasSubstr("input tensor 1 of a region of activation checkpointing was changed in place"));
}

TEST(CheckpointMistakes, ASavedTensorThatTheRegionChangesAfterwards) {
  const Error error = error_of([] {
    checkpoint(
        [](const at::Tensor& x) {
          at::Tensor y = x.exp();  // saves its result
          y.mul_(2);
          return y.tanh();
        },
        matrix())
        .sum()
        .backward();
  });
  EXPECT_EQ(error.code(), ErrorCode::kOrder);
  EXPECT_THAT(error.message(),
              HasSubstr("a tensor that operator aten::exp saved in a region of activation checkpointing for backward was "
                        "changed in place afterwards: Float [4, 4]"));
}

TEST(CheckpointMistakes, ARecomputationThatSavesLess) {
  int calls = 0;
  const at::Tensor y = checkpoint([&](const at::Tensor& x) { return ++calls == 1 ? x.tanh().exp().tanh() : x.tanh(); }, matrix());
  const Error error = error_of([&] { y.sum().backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_THAT(error.message(), HasSubstr("its operators saved 1 tensors for backward, and those of the forward 3"));
}

TEST(CheckpointMistakes, ARecomputationOfAnotherShapeOrType) {
  int calls = 0;
  at::Tensor y = checkpoint([&](const at::Tensor& x) { return (++calls == 1 ? x : x.slice(0, 0, 2)).tanh(); }, matrix());
  Error error = error_of([&] { y.sum().backward(); });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_THAT(error.message(),
              HasSubstr("operator aten::tanh saved a tensor of Float [2, 4] on cpu, where operator aten::tanh had "
                        "saved one of Float [4, 4] on cpu (number 1)"));
  calls = 0;
  y = checkpoint([&](const at::Tensor& x) { return (++calls == 1 ? x : x.to(torch::kDouble)).exp(); }, matrix());
  error = error_of([&] { y.sum().backward(); });
  EXPECT_THAT(error.message(), HasSubstr("operator aten::exp saved a tensor of Double"));
}

TEST(CheckpointMistakes, AnErrorOfTheRecomputationIsItsOwnAndLeavesNothingBehind) {
  int calls = 0;
  at::Tensor statistics = torch::zeros({});
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& x) {
        statistics.add_(1);
        if (++calls == 2) throw std::runtime_error("no more of this");
        return x.tanh();
      },
      matrix());
  EXPECT_THROW(y.sum().backward(), std::runtime_error);
  EXPECT_EQ(statistics.item<float>(), 1);
  const at::Tensor x = matrix();
  checkpoint([](const at::Tensor& x) { return x.tanh(); }, x).sum().backward();  // the thread keeps nothing of the former one
  EXPECT_TRUE(x.grad().defined());
}

TEST(CheckpointMistakes, ARegionThatCatchesEverythingRunsToItsEnd) {
  const auto with = [](bool early_stop) {
    int ends = 0;
    const at::Tensor x = matrix();
    checkpoint(
        {.early_stop = early_stop},
        [&](const at::Tensor& x) {
          at::Tensor y = x;
          try {
            y = x.tanh();
          } catch (...) {
          }
          ++ends;
          return y * 2;
        },
        x)
        .sum()
        .backward();
    EXPECT_TRUE(torch::allclose(x.grad(), 2 * (1 - x.detach().tanh().pow(2))));
    return ends;
  };
  EXPECT_EQ(with(false), 2);
  EXPECT_EQ(with(true), 2);  // it goes on from the catch: no harm done here
}

struct OtherEngine : torch::autograd::Engine {};  // as Python's

TEST(CheckpointMistakes, AnotherEngineInTheProcess) {
  activation::install_saved_tensor_hooks();
  static auto* const ours = &torch::autograd::Engine::get_default_engine();
  torch::autograd::set_default_engine_stub(+[]() -> torch::autograd::Engine& {
    static auto* const forever = new OtherEngine;
    return *forever;
  });
  const Error error = error_of([] { checkpoint([](const at::Tensor& x) { return x.tanh(); }, matrix()); });
  torch::autograd::set_default_engine_stub(+[]() -> torch::autograd::Engine& { return *ours; });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.message(), HasSubstr("another autograd engine is installed in this process"));
  const at::Tensor x = matrix();
  checkpoint([](const at::Tensor& x) { return x.tanh(); }, x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace gannet::test
