// The scalars of one Muon step, computed from the hyperparameters.
#pragma once

#include "optimizers/device/both.h"

namespace gannet::rules {

struct MuonStep {
  double lr, momentum, weight_decay;
  double scale;  // multiplies the orthogonalized update; follows from the tensor's shape
  bool nesterov;
};

template <class T>
struct MuonNumbers {
  T one_minus_momentum;
  T keep;        // 1 - lr * decay
  T minus_rate;  // -lr * scale
};

template <class T>
MuonNumbers<T> muon_numbers(const MuonStep& s) {
  MuonNumbers<T> n;
  n.one_minus_momentum = static_cast<T>(1 - s.momentum);
  n.keep = static_cast<T>(1 - s.lr * s.weight_decay);
  n.minus_rate = static_cast<T>(-s.lr * s.scale);
  return n;
}

// Scales the direction before orthogonalization, so that no singular value exceeds 1.
GANNET_BOTH float muon_normalizing_factor(double norm) { return static_cast<float>(1 / (norm + 1e-7)); }

}  // namespace gannet::rules
