// Adafactor's formulas for one element, shared by the CPU loops and the device kernels.
#pragma once

#include <gannet/elementwise/scalar.h>

namespace gannet::rules {

// The term that is summed over rows and columns.
GANNET_DEVICE double adafactor_square(float gradient, double eps) {
  const double g = gradient;
  return g * g + eps;
}

// The update before clipping: the gradient divided by the root of its second moment. The inverse
// root is the product of a row factor and a column factor.
GANNET_DEVICE float adafactor_direction(float gradient, float of_row, float of_column) { return gradient * of_row * of_column; }

struct AdafactorRule {
  float factor;  // the learning rate divided by the clipping divisor
  float decay;   // weight decay times the learning rate
  float beta1;   // decay rate of the first moment, if there is one

  // `exp_avg` is null if there is no first moment.
  GANNET_DEVICE void operator()(float direction, float& param, float* exp_avg) const {
    float u = direction * factor;
    if (exp_avg) u = *exp_avg = beta1 * *exp_avg + (1 - beta1) * u;
    param = param - decay * param - u;
  }
};

}  // namespace gannet::rules
