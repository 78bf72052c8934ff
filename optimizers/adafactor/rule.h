// Adafactor's formulas of one element, for the CPU's loops and the kernels of devices.
#pragma once

#include <gannet/elementwise/scalar.h>

namespace gannet::rules {

// What rows and columns are sums of.
GANNET_DEVICE double adafactor_square(float gradient, double eps) {
  const double g = gradient;
  return g * g + eps;
}

// The update before it is clipped: the gradient over the root of its second moment, which is a factor of its row times one of its
// column.
GANNET_DEVICE float adafactor_direction(float gradient, float of_row, float of_column) { return gradient * of_row * of_column; }

struct AdafactorRule {
  float factor;  // learning rate, over what the update is clipped by
  float decay;   // weight decay times the learning rate
  float beta1;   // of the first moment, where there is one

  // `exp_avg` is null without a first moment.
  GANNET_DEVICE void operator()(float direction, float& param, float* exp_avg) const {
    float u = direction * factor;
    if (exp_avg) u = *exp_avg = beta1 * *exp_avg + (1 - beta1) * u;
    param = param - decay * param - u;
  }
};

}  // namespace gannet::rules
