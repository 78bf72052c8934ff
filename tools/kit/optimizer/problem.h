// The problem that a simulated run trains: tensors of many shapes in two groups, with initial
// values and gradients derived from a seed.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::kit {

struct ProblemTypes {
  gannet_dtype param = GANNET_FLOAT32, grad = GANNET_FLOAT32, out = GANNET_DTYPE_NONE;
};
std::string text_of(const ProblemTypes& types);

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t numel = 1;
  uint32_t group = 0;
  int64_t joins = 0;  // group updates that it missed while it was frozen
};

struct Problem {
  std::vector<TensorSpec> tensors;
  ProblemTypes types;
  uint64_t seed = 1;
  bool has_nonfinite = false;  // some gradients are NaN or infinite
  // Parameters and gradients are multiples of 2^-7, exact in every floating-point type.
  bool is_coarse = false;
  std::vector<double> chosen;  // if not empty, the parameters repeat these values; gradients are 0
  // Tensor t has the initial values of tensor seed_of[t], and its gradients at step - delay[t], so
  // that a problem can repeat a tensor of another run.
  std::vector<uint64_t> seed_of;
  std::vector<int64_t> delay;

  uint32_t groups() const;
  double initial(size_t tensor, uint64_t i) const;
  double gradient(size_t tensor, uint64_t i, int64_t step) const;

 private:
  double rounded(double value) const;
};

// One element, odd sizes, whole SIMD vectors and one element more, vectors, matrices, and one tensor
// of a thousand elements.
Problem many_shapes(const ProblemTypes& types);
// Two small tensors and one that is large enough for the host's threads.
Problem with_a_large_one(const ProblemTypes& types);

// Tensors of every length from 1 to 131, and one of 2^20 + 3 elements.
Problem many_lengths(const ProblemTypes& types);
// Many small tensors: more than a list has in the other problems.
Problem many_tensors(const ProblemTypes& types);

}  // namespace gannet::kit
