// One step's numbers of the 1-bit optimizers, from the hyperparameters, in double.
#pragma once

#include <cstdint>

namespace gannet::rules {

struct OneBitStep {
  double lr, beta1, beta2, eps, weight_decay;
};

// Of a part of one tensor in the warm-up of 1-bit LAMB: squares of the parameters, and of the direction.
struct OneBitLambNorms {
  double weights = 0, update = 0;
};

// And after it: squares of the direction without and with decay, and the largest ratio of the frozen denominator to the current
// one.
struct OneBitLambRatios {
  double momentum = 0, update = 0, denominators = 0;
};

}  // namespace gannet::rules
