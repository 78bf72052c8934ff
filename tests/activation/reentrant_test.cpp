// use_reentrant: DeepSpeed's form of a region.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>

#include "activation/blocks.h"
#include "activation/error_of.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;
using ::testing::HasSubstr;

const checkpointing::Options kReentrant{.name = "block", .use_reentrant = true};

std::vector<at::Tensor> reentrant_gradients(bool has_regions, bool nests) {
  torch::manual_seed(1);
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.emplace_back(16, 2, 0.1);
  auto norm = torch::nn::BatchNorm1d(6);
  at::Tensor x = torch::randn({2, 6, 16}, torch::requires_grad());
  const auto one = [&](Block& block, const at::Tensor& x) {
    return has_regions ? checkpoint(kReentrant, block, x) : block->forward(x);
  };
  const auto two = [&](const at::Tensor& x, size_t first) {
    const at::Tensor y = norm(one(blocks[first + 1], one(blocks[first], x)));
    return std::pair(y * 2, std::vector{y.argmax(), y.tanh()});
  };
  at::Tensor y = x;
  for (size_t first : {0, 2}) {
    const auto [a, more] = has_regions && nests ? checkpoint(kReentrant, two, y, first) : two(y, first);
    y = a + more[1];
  }
  at::Tensor loss = y.pow(2).mean();
  loss.backward();
  std::vector<at::Tensor> all = {loss, x.grad(), norm->running_mean, norm->num_batches_tracked, torch::randn({3})};
  for (Block& block : blocks)
    for (const at::Tensor& parameter : block->parameters()) all.push_back(parameter.grad());
  return all;
}

TEST(Reentrant, GradientsAreThoseOfThePlainRun) {
  const auto plain = reentrant_gradients(false, false);
  for (const bool nests : {false, true}) {
    const auto found = reentrant_gradients(true, nests);
    ASSERT_EQ(found.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(found[i], plain[i])) << i << " nested: " << nests;
  }
}

at::Tensor region(const at::Tensor& x) {
  return checkpoint(kReentrant, [](const at::Tensor& x) { return x.tanh().exp(); }, x);
}

TEST(Reentrant, RefusesWhatItCannotServe) {
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  const auto refused = [](const std::function<void()>& f) {
    const Error error = activation_error(f);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.message(), HasSubstr("'block'"));
    EXPECT_THAT(error.next_step(), HasSubstr("use_reentrant at false"));
    return std::string(error.message());
  };
  const at::Tensor y = region(x);
  EXPECT_THAT(refused([&] { torch::autograd::grad({y.sum()}, {x}); }), HasSubstr("autograd::grad"));
  EXPECT_THAT(refused([&] { region(x).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true); }),
              HasSubstr("create_graph"));
  EXPECT_THAT(refused([&] { region(torch::ones({4})); }), HasSubstr("no input"));
  EXPECT_THAT(refused([&] { checkpoint(kReentrant, [](const at::Tensor&) {}, x); }), HasSubstr("returns no tensor"));
  EXPECT_THAT(refused([&] { checkpoint(kReentrant, [](const at::Tensor&) { return 1; }, x); }), HasSubstr("returns no tensor"));
}

TEST(Reentrant, SeveralBackwardsAddUpAndTheLastFreesTheInputs) {
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  const at::Tensor loss = region(x * 2).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad(), once * 2));
  EXPECT_NO_THROW(checkpointing::reset()) << "nothing waits, though the loss is held";
}

TEST(Reentrant, AnInputThatStandsThereTwiceHasOneGradient) {
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  const auto f = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& none) {
    return none.defined() ? a : a * b.exp();
  };
  checkpoint(kReentrant, f, x, x, at::Tensor()).sum().backward();
  const at::Tensor found = x.grad().clone();
  x.mutable_grad().reset();
  f(x, x, at::Tensor()).sum().backward();
  EXPECT_TRUE(at::equal(found, x.grad()));
}

// As a Python interpreter's: the other form refuses it.
TEST(Reentrant, WorksUnderAnotherEngine) {
  struct Other : torch::autograd::Engine {};
  static auto* const other = new Other;
  auto& before = torch::autograd::Engine::get_default_engine();
  static torch::autograd::Engine* own;
  own = &before;
  torch::autograd::set_default_engine_stub(+[]() -> torch::autograd::Engine& { return *other; });
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  EXPECT_NO_THROW(region(x).sum().backward());
  EXPECT_TRUE(x.grad().defined());
  torch::autograd::set_default_engine_stub(+[]() -> torch::autograd::Engine& { return *own; });
}

}  // namespace
}  // namespace gannet::test
