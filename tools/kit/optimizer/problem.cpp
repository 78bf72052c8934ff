#include "kit/optimizer/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "kit/numbers.h"

namespace gannet::kit {
namespace {

void add(Problem& problem, const std::string& name, std::vector<int64_t> shape, uint32_t group = 0) {
  TensorSpec tensor{name, std::move(shape), 1, group};
  for (const int64_t length : tensor.shape) tensor.numel *= static_cast<uint64_t>(length);
  problem.seed_of.push_back(problem.tensors.size());
  problem.delay.push_back(0);
  problem.tensors.push_back(std::move(tensor));
}

}  // namespace

std::string text_of(const ProblemTypes& types) {
  return formatted("{} parameters, {} gradients, {}", name_of(types.param), name_of(types.grad),
                   types.out == GANNET_DTYPE_NONE ? "no copy" : formatted("a {} copy", name_of(types.out)));
}

uint32_t Problem::groups() const {
  uint32_t count = 0;
  for (const TensorSpec& tensor : tensors) count = std::max(count, tensor.group + 1);
  return count;
}

double Problem::initial(size_t tensor, uint64_t i) const {
  if (!chosen.empty()) return chosen[i % chosen.size()];
  return rounded(uniform(mixed(seed, seed_of[tensor], i, 0)));
}

double Problem::rounded(double value) const { return is_coarse ? std::rint(std::ldexp(value, 7)) / 128 : value; }

double Problem::gradient(size_t tensor, uint64_t i, int64_t step) const {
  if (!chosen.empty()) return 0;
  const uint64_t bits = mixed(seed + 1, seed_of[tensor], i, static_cast<uint64_t>(step - delay[tensor]));
  if (has_nonfinite && bits % 64 == 0)
    return bits / 64 % 3 == 0   ? std::numeric_limits<double>::quiet_NaN()
           : bits / 64 % 3 == 1 ? std::numeric_limits<double>::infinity()
                                : -std::numeric_limits<double>::infinity();
  // Tensors differ in scale, like layers; one gradient in 32 is zero.
  return bits % 32 == 0 ? 0 : rounded(uniform(bits)) * std::ldexp(1.0, -static_cast<int>(seed_of[tensor] % 4));
}

Problem many_shapes(const ProblemTypes& types) {
  Problem problem;
  problem.types = types;
  add(problem, "scalar", {});
  add(problem, "one", {1});
  add(problem, "three", {3});
  add(problem, "bias", {17});
  add(problem, "matrix", {5, 7}, 1);
  add(problem, "lanes", {64});
  add(problem, "lanes_and_one", {129});
  add(problem, "head", {2, 3, 11}, 1);
  add(problem, "square", {16, 16});
  add(problem, "row", {1, 37}, 1);
  add(problem, "wide", {24, 43});
  return problem;
}

Problem with_a_large_one(const ProblemTypes& types) {
  Problem problem;
  problem.types = types;
  add(problem, "bias", {17});
  add(problem, "large", {251, 279});
  add(problem, "odd", {1, 333}, 1);
  return problem;
}

Problem many_lengths(const ProblemTypes& types) {
  Problem problem;
  problem.types = types;
  for (int64_t length = 1; length <= 131; ++length) add(problem, formatted("length_{}", length), {length});
  add(problem, "million", {(int64_t{1} << 20) + 3});
  return problem;
}

Problem many_tensors(const ProblemTypes& types) {
  Problem problem;
  problem.types = types;
  for (int64_t i = 0; i < 700; ++i) add(problem, formatted("small_{}", i), {i % 5 + 1, i % 7 + 1});
  return problem;
}

}  // namespace gannet::kit
