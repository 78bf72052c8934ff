// A function with the results of some operators computed again: its result, gradients and what its graph holds.
#pragma once

#include <gannet/checkpointing.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "activation/blocks.h"
#include "activation/counting.h"
#include "activation/selective.h"

namespace gannet::test {

using activation::CheapOperators;
using activation::SelectiveRecomputation;
using Names = std::vector<std::string>;
using Function = std::function<at::Tensor(const at::Tensor&)>;

inline at::Tensor forward_with(const Names& names, const Function& f, const at::Tensor& x) {
  const CheapOperators chosen(names);
  const SelectiveRecomputation selective(chosen);
  return f(x);
}

struct SelectiveOutcome {
  at::Tensor y, random;
  std::vector<at::Tensor> gradients;
  int64_t kept = 0;  // bytes of the graph
};

// `f` of a fixed input, and the gradients of `parameters` and of the input.
inline SelectiveOutcome outcome(const Names& names, const Function& f, at::IntArrayRef sizes,
                                std::vector<at::Tensor> parameters = {}) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn(sizes).requires_grad_();
  parameters.push_back(x);
  const Counted counted;
  const int64_t before = CountingAllocator::live;
  SelectiveOutcome result;
  result.y = forward_with(names, f, x);
  result.kept = CountingAllocator::live - before;
  const at::Tensor weight = torch::linspace(-1, 1, result.y.numel()).reshape(result.y.sizes()).to(result.y.scalar_type());
  result.random = torch::rand({2});
  torch::manual_seed(17);  // what backward finds is another state than the forward's
  result.gradients = torch::autograd::grad({(result.y * weight).sum()}, parameters, {}, {}, false, /*allow_unused=*/true);
  return result;
}

inline void expect_same(const SelectiveOutcome& found, const SelectiveOutcome& plain, const std::string& what) {
  EXPECT_TRUE(at::equal(found.y, plain.y)) << what;
  EXPECT_TRUE(at::equal(found.random, plain.random)) << what << ": the generator's state after the forward";
  ASSERT_EQ(found.gradients.size(), plain.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(found.gradients[i], plain.gradients[i])) << what << ", gradient " << i;
}

// As the program wrote them: torch::nn::Sequential, nothing wrapped.
inline torch::nn::Sequential blocks(int64_t count, int64_t width, double dropout) {
  torch::manual_seed(1);
  torch::nn::Sequential model;
  for (int64_t i = 0; i < count; ++i) {
    Block block(width, 8, dropout);
    model->push_back(block);
  }
  return model;
}

}  // namespace gannet::test
