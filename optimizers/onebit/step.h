// The scalars of one step of the 1-bit optimizers, in double, computed from the hyperparameters.
#pragma once

#include <cstdint>

namespace gannet::rules {

struct OneBitStep {
  double lr, beta1, beta2, eps, weight_decay;
};

// Sums over a part of a tensor in the warm-up of 1-bit LAMB: the squares of the parameters and of
// the direction.
struct OneBitLambNorms {
  double weights = 0, update = 0;
};

// Results after the warm-up of 1-bit LAMB: the sums of squares of the direction without and with
// decay, and the largest ratio of the frozen denominator to the current one.
struct OneBitLambRatios {
  double momentum = 0, update = 0, denominators = 0;
};

}  // namespace gannet::rules
