// The scalars of one Adam step, in double.
#pragma once

#include <cstdint>

namespace gannet::rules {

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  uint64_t step;   // 1 for the first update
  bool decoupled;  // whether the decay is AdamW's; otherwise it is added to the gradient
  bool bias_correction;
};

}  // namespace gannet::rules
