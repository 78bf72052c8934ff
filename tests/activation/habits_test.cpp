// Common code around regions: state that a region writes and reads, tensors changed between forward
// and backward, modules that are switched, functions with state, other threads.
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "activation/blocks.h"

namespace gannet::test {
namespace {

using checkpointing::checkpoint;
using ::testing::HasSubstr;

at::Tensor some_input() {
  torch::manual_seed(3);
  return torch::randn({4, 4}, torch::requires_grad());
}

template <class F>
std::string error_text(const F& f, ErrorCode code) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "there was no error";
  return "";
}

// Gradient of x and the state afterwards, of a function that has a state, with and without a region.
void expect_same_with_state(const std::function<at::Tensor(at::Tensor state, const at::Tensor& x)>& f,
                            const at::Tensor& initial) {
  const auto run = [&](bool region) {
    at::Tensor state = initial.clone();
    const at::Tensor x = some_input();
    const auto g = [&](const at::Tensor& x) { return f(state, x); };
    for (int step = 0; step < 2; ++step) (region ? checkpoint(g, x) : g(x)).sum().backward();
    return std::make_pair(x.grad(), state);
  };
  const auto plain = run(false), found = run(true);
  EXPECT_TRUE(at::equal(found.first, plain.first)) << found.first << plain.first;
  EXPECT_TRUE(at::equal(found.second, plain.second));
}

TEST(CheckpointHabits, StateThatIsWrittenAndUsed) {
  // A running scale; a power iteration, as of a spectral norm; a cache that what comes later reads whole.
  expect_same_with_state(
      [](at::Tensor scale, const at::Tensor& x) {
        {
          const torch::NoGradGuard no_grad;
          scale.mul_(0.9).add_(x.abs().mean(), 0.1);
        }
        return (x / scale.clone()).tanh();
      },
      torch::ones({}));
  expect_same_with_state(
      [](at::Tensor u, const at::Tensor& x) {
        {
          const torch::NoGradGuard no_grad;
          u.copy_(torch::matmul(x, u) / torch::matmul(x, u).norm());
        }
        return (x / torch::dot(u.clone(), torch::matmul(x, u.clone()))).exp();
      },
      torch::ones({4}));
  expect_same_with_state(
      [](at::Tensor cache, const at::Tensor& x) {
        cache.slice(0, 2, 6).copy_(x.detach());
        return torch::matmul(x, cache.t()).tanh();
      },
      torch::full({8, 4}, 0.5));
}

TEST(CheckpointHabits, MemoryThatTheRegionLentToATensorIsNotWrittenLater) {
  std::vector<float> kept(1000, 1.0f);
  const at::Tensor x = some_input();
  checkpoint(
      [&](const at::Tensor& x) {
        std::vector<float> scratch(1000, 1.0f);
        torch::from_blob(scratch.data(), {1000}).mul_(2);
        torch::from_blob(kept.data(), {1000}).add_(1);  // the program's: what it writes by address it writes twice
        return x.exp().sin();
      },
      x)
      .sum()
      .backward();
  EXPECT_EQ(kept[0], 3.0f);
  EXPECT_TRUE(x.grad().defined());
}

TEST(CheckpointHabits, WhatTheRegionReadsWasChangedBeforeBackward) {
  torch::nn::Linear layer(4, 4);
  const std::string of_step = error_text(
      [&] {
        const at::Tensor y = checkpoint(layer, torch::ones({2, 4}));
        {
          const torch::NoGradGuard no_grad;
          layer->weight.sub_(0.1);
        }
        y.tanh().sum().backward();
      },
      ErrorCode::kOrder);
  EXPECT_THAT(of_step, HasSubstr("changed in place"));
  struct Batch {
    at::Tensor scale;
  } batch{torch::ones({4})};
  const std::string of_struct = error_text(
      [&] {
        const at::Tensor y = checkpoint([](const at::Tensor& x, const Batch& batch) { return (x * batch.scale).exp().sin(); },
                                        some_input(), batch);
        batch.scale.mul_(2);
        y.sum().backward();
      },
      ErrorCode::kOrder);
  EXPECT_THAT(of_struct, HasSubstr("a tensor of shape [4] that a region of activation checkpointing reads was changed in place"));
}

TEST(CheckpointHabits, ParametersAreFrozenOrUnfrozenBeforeBackward) {
  torch::nn::Linear first(4, 4), second(4, 4);
  for (const bool before : {true, false}) {
    first->weight.set_requires_grad(before);
    const at::Tensor y = checkpoint([&](const at::Tensor& x) { return second->forward(first->forward(x).tanh()); }, some_input());
    first->weight.set_requires_grad(!before);
    EXPECT_THAT(error_text([&] { y.sum().backward(); }, ErrorCode::kMismatch),
                HasSubstr("requires_grad of a tensor of shape [4, 4]"));
  }
}

TEST(CheckpointHabits, AModuleIsSwitchedBetweenForwardAndBackward) {
  torch::nn::Dropout dropout(0.5);
  for (const bool trains : {true, false}) {
    dropout->train(trains);
    const at::Tensor y = checkpoint([&](const at::Tensor& x) { return dropout->forward(x.exp()).sin(); }, some_input());
    dropout->train(!trains);
    EXPECT_THAT(error_text([&] { y.sum().backward(); }, ErrorCode::kMismatch), HasSubstr("differs from its forward"));
  }
}

TEST(CheckpointHabits, ASwitchWithinTheRegionIsUndoneByTheRegionItself) {
  torch::nn::Dropout dropout(0.5);
  int depth = 0;
  const at::Tensor x = some_input();
  checkpoint(
      [&](const at::Tensor& x) {
        ++depth;
        dropout->eval();
        const at::Tensor y = dropout->forward(x).tanh();
        dropout->train();
        --depth;
        return y;
      },
      x)
      .sum()
      .backward();
  EXPECT_TRUE(dropout->is_training());
  EXPECT_EQ(depth, 0);
}

TEST(CheckpointHabits, FunctionsWithAStateOfTheirOwn) {
  const auto run = [](bool region) {
    const at::Tensor x = some_input();
    auto f = [n = 0, h = torch::ones({4})](const at::Tensor& x) mutable {
      h = h + 1;
      return (x * h * ++n).tanh();
    };
    for (int call = 0; call < 3; ++call) (region ? checkpoint(f, x) : f(x)).sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(CheckpointHabits, GeneratorsThatAreCaptured) {
  const auto run = [](bool region) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    const at::Tensor x = some_input();
    const auto f = [&](const at::Tensor& x) { return x * torch::empty_like(x).bernoulli_(0.5, generator) * x; };
    (region ? checkpoint(f, x) : f(x)).sum().backward();
    return std::make_pair(x.grad(), generator.get_state());
  };
  EXPECT_TRUE(at::equal(run(true).first, run(false).first));
  EXPECT_TRUE(at::equal(run(true).second, run(false).second));
}

TEST(CheckpointHabits, SeveralThreadsRecomputeRegionsWithDropout) {
  std::vector<at::Tensor> xs, ys, expected;
  torch::manual_seed(9);
  const auto f = [](const at::Tensor& x) { return torch::dropout(torch::dropout(x.tanh(), 0.5, true).exp(), 0.5, true); };
  for (const bool region : {false, true}) {
    xs.clear(), ys.clear();
    torch::manual_seed(9);
    for (int i = 0; i < 8; ++i) {
      xs.push_back(torch::full({64, 64}, 0.1 * i, torch::requires_grad()));
      ys.push_back(region ? checkpoint(f, xs.back()) : f(xs.back()));
    }
    if (!region) {
      for (int i = 0; i < 8; ++i) ys[i].sum().backward(), expected.push_back(xs[i].grad().clone());
      continue;
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&, i] { ys[i].sum().backward(); });
    for (auto& thread : threads) thread.join();
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(at::equal(xs[i].grad(), expected[i])) << i;
  }
}

TEST(CheckpointHabits, RegionsWithoutRandomNumbersLeaveTheGeneratorsAlone) {
  const at::Tensor x = some_input();
  const at::Tensor y = checkpoint([](const at::Tensor& x) { return x.tanh().exp(); }, x);
  std::atomic<bool> stop = false;
  torch::manual_seed(1);
  at::Tensor drawn;
  std::thread other([&] { drawn = torch::rand({1000}); });
  other.join();
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  y.sum().backward();
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
}

TEST(CheckpointHabits, OneTensorAsTwoArguments) {
  const auto f = [](const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor inner = (a * b).sin();
    const at::Tensor force = torch::autograd::grad({inner.sum()}, {a}, {}, true, true)[0];
    return (inner * force).tanh();
  };
  const auto run = [&](bool region) {
    const at::Tensor x = some_input();
    (region ? checkpoint(f, x, x) : f(x, x)).sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(CheckpointHabits, ABackwardWithinTheRegionAccumulatesOnce) {
  const auto run = [](bool region) {
    const at::Tensor x = some_input(), w = torch::ones({4, 4}, torch::requires_grad());
    const auto f = [&](const at::Tensor& x) {
      torch::mm(x.detach(), w).tanh().exp().sum().backward();
      return x.exp().sin();
    };
    (region ? checkpoint(f, x) : f(x)).sum().backward();
    return std::make_pair(x.grad(), w.grad());
  };
  EXPECT_TRUE(at::equal(run(true).first, run(false).first));
  EXPECT_TRUE(at::equal(run(true).second, run(false).second));
}

TEST(CheckpointHabits, MemoryOfTheProgramWithADeleter) {
  const auto run = [](bool region) {
    const at::Tensor x = some_input();
    const auto f = [](const at::Tensor& x) {
      auto* const values = new float[4]{1, 2, 3, 4};
      const at::Tensor t = torch::from_blob(values, {4}, [](void* memory) { delete[] static_cast<float*>(memory); });
      return x * t.mul_(2);
    };
    (region ? checkpoint(f, x) : f(x)).sin().sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(CheckpointHabits, ReferencesToValuesAreKeptAsTheValues) {
  const at::Tensor x = some_input();
  at::Tensor y;
  {
    const std::vector<at::Tensor> many = {x * 2, x + 1};
    const std::vector<int64_t> shape = {2, 8};
    y = checkpoint([](at::TensorList many, at::IntArrayRef shape,
                      std::string_view how) { return (how == "sum" ? (many[0] + many[1]) : many[0]).view(shape).tanh(); },
                   at::TensorList(many), at::IntArrayRef(shape), std::string_view("sum"));
  }
  y.sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), 3 * (1 - (3 * x.detach() + 1).tanh().pow(2)), 1e-4, 1e-6)) << x.grad() << x;
}

TEST(CheckpointHabits, OutParametersAndMoveOnlyFunctions) {
  const at::Tensor x = some_input();
  at::Tensor out;
  checkpoint([](at::Tensor& out, const at::Tensor& x) { out = x.tanh(); }, out, x);
  ASSERT_TRUE(out.defined());
  out.sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), 1 - x.detach().tanh().pow(2)));
  const at::Tensor y =
      checkpoint([scale = std::make_unique<double>(2.0)](const at::Tensor& x) noexcept { return (x * *scale).exp(); }, x);
  y.sum().backward();
}

TEST(CheckpointHabits, ATensorOfInferenceAsAnArgument) {
  at::Tensor mask;
  {
    const c10::InferenceMode inference;
    mask = torch::ones({4, 4});
  }
  const at::Tensor x = some_input();
  checkpoint([](const at::Tensor& x, const at::Tensor& mask) { return (x.exp() + mask).tanh(); }, x, mask).sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(CheckpointHabits, BackwardsThatFailKeepNothing) {
  const at::Tensor x = torch::randn({1 << 16}, torch::requires_grad());
  const at::Tensor y = x * 1;
  bool fails = true;
  y.register_hook([&](at::Tensor gradient) {
    if (fails) throw std::runtime_error("not yet");
    return gradient;
  });
  const at::Tensor z = checkpoint([](const at::Tensor& y) { return y.tanh().exp().sin(); }, y).sum();
  for (int i = 0; i < 20; ++i) EXPECT_THROW(z.backward({}, /*retain_graph=*/true), std::runtime_error);
  fails = false;
  z.backward();
  const at::Tensor t = x.detach().tanh();
  EXPECT_TRUE(torch::allclose(x.grad(), t.exp().cos() * t.exp() * (1 - t * t), 1e-4, 1e-5));
}

}  // namespace
}  // namespace gannet::test
