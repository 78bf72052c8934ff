// One step's numbers of SGD, from the hyperparameters.
#pragma once

#include <cstdint>

namespace gannet::optimizers {

struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool has_buffer;  // the momentum buffer exists
  bool nesterov, maximize;
  uint64_t step;  // 1 at the first update
};

template <class T>
struct SgdNumbers {
  T sign;  // -1 to maximize
  T weight_decay, minus_lr;
  T momentum;    // as Nesterov's step uses it
  T keep, take;  // buffer <- keep buffer + take g; the first step makes the buffer the gradient
};

template <class T>
SgdNumbers<T> sgd_numbers(const SgdStep& s) {
  const bool first = s.step <= 1;
  SgdNumbers<T> n;
  n.sign = s.maximize ? -1 : 1;
  n.weight_decay = static_cast<T>(s.weight_decay);
  n.minus_lr = static_cast<T>(-s.lr);
  n.momentum = static_cast<T>(s.momentum);
  n.keep = first ? 0 : n.momentum;
  n.take = first ? 1 : static_cast<T>(1 - s.dampening);
  return n;
}

}  // namespace gannet::optimizers
