// One step's numbers of Adam, from the hyperparameters: in double, once per call, then rounded to the master's type.
#pragma once

#include <cmath>
#include <cstdint>

namespace gannet::optimizers {

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  uint64_t step;   // 1 at the first update
  bool decoupled;  // AdamW's decay; else it is added to the gradient
  bool bias_correction;
};

template <class T>
struct AdamNumbers {
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T inverse_root_bias2;    // 1/sqrt(bc2)
  T eps, minus_step_size;  // -lr/bc1
  T decoupled_decay;       // -lr decay; 0 unless decoupled
  T l2;                    // 0 if decoupled
};

template <class T>
AdamNumbers<T> adam_numbers(const AdamStep& s) {
  AdamNumbers<T> n;
  // The betas as the master's type has them, and all else from those, as in DeepSpeed's kernels: 1 - 0.999 in fp32 is
  // 1.3e-5 off 0.001, and the bias correction must divide by what the moments' weights really add up to.
  n.beta1 = static_cast<T>(s.beta1);
  n.one_minus_beta1 = 1 - n.beta1;
  n.beta2 = static_cast<T>(s.beta2);
  n.one_minus_beta2 = 1 - n.beta2;
  const double bias1 = s.bias_correction ? 1 - std::pow(double{n.beta1}, static_cast<double>(s.step)) : 1;
  const double bias2 = s.bias_correction ? 1 - std::pow(double{n.beta2}, static_cast<double>(s.step)) : 1;
  n.inverse_root_bias2 = static_cast<T>(1 / std::sqrt(bias2));
  n.eps = static_cast<T>(s.eps);
  n.minus_step_size = static_cast<T>(-s.lr / bias1);
  n.decoupled_decay = s.decoupled ? -static_cast<T>(s.lr) * static_cast<T>(s.weight_decay) : 0;
  n.l2 = s.decoupled ? 0 : static_cast<T>(s.weight_decay);
  return n;
}

template <class T>
struct TorchAdamNumbers {
  T one_minus_beta1, beta2, one_minus_beta2;
  T root_bias2;  // sqrt(bc2)
  T eps, minus_step_size;
  T keep;  // 1 - lr * decay if decoupled, else 1
  T l2;
};

template <class T>
TorchAdamNumbers<T> torch_adam_numbers(const AdamStep& s) {
  const double bias1 = 1 - std::pow(s.beta1, static_cast<double>(s.step));
  const double bias2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  TorchAdamNumbers<T> n;
  n.one_minus_beta1 = static_cast<T>(1 - s.beta1);
  n.beta2 = static_cast<T>(s.beta2);
  n.one_minus_beta2 = static_cast<T>(1 - s.beta2);
  n.root_bias2 = static_cast<T>(std::sqrt(bias2));
  n.eps = static_cast<T>(s.eps);
  n.minus_step_size = static_cast<T>(-s.lr / bias1);
  n.keep = s.decoupled ? static_cast<T>(1 - s.lr * s.weight_decay) : 1;
  n.l2 = s.decoupled ? 0 : static_cast<T>(s.weight_decay);
  return n;
}

}  // namespace gannet::optimizers
