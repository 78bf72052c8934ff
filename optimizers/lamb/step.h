// The scalars of one LAMB step, computed in double from the hyperparameters once per call and then
// rounded to the master's type.
#pragma once

#include <cmath>
#include <cstdint>

namespace gannet::rules {

struct LambStep {
  double lr, beta1, beta2, eps, weight_decay;
  uint64_t step;  // 1 for the first update
  bool eps_inside_sqrt, bias_correction;
};

template <class T>
struct LambNumbers {
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T eps_inside, eps_outside;  // added inside and outside the root of the second moment; one of them is 0
  T weight_decay;
  double step_size;  // lr sqrt(bc2) / bc1, without the tensor's trust ratio
};

template <class T>
LambNumbers<T> lamb_numbers(const LambStep& s) {
  LambNumbers<T> n;
  // As in AdamRule, the betas are rounded to the master's type, and the bias correction is derived
  // from the rounded ones.
  n.beta1 = static_cast<T>(s.beta1);
  n.one_minus_beta1 = 1 - n.beta1;
  n.beta2 = static_cast<T>(s.beta2);
  n.one_minus_beta2 = 1 - n.beta2;
  n.eps_inside = s.eps_inside_sqrt ? static_cast<T>(s.eps) : 0;
  n.eps_outside = s.eps_inside_sqrt ? 0 : static_cast<T>(s.eps);
  n.weight_decay = static_cast<T>(s.weight_decay);
  n.step_size = s.lr;
  if (s.bias_correction)
    n.step_size *= std::sqrt(1 - std::pow(double{n.beta2}, static_cast<double>(s.step))) /
                   (1 - std::pow(double{n.beta1}, static_cast<double>(s.step)));
  return n;
}

// The two results of the first pass over one tensor.
struct LambSums {
  double weights = 0, update = 0;  // sums of squares of the parameters, and of the direction
};

// Returns the norm of the weights divided by the norm of the direction, clamped; 1 if either is 0.
// NaN stays NaN, as in DeepSpeed.
inline double lamb_coefficient(double squares_of_weights, double squares_of_update, double min_coeff, double max_coeff) {
  if (squares_of_weights == 0 || squares_of_update == 0) return 1;
  const double ratio = std::sqrt(squares_of_weights) / std::sqrt(squares_of_update);
  return ratio > max_coeff ? max_coeff : ratio < min_coeff ? min_coeff : ratio;
}

}  // namespace gannet::rules
