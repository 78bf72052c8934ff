// The numbers of one Adam step, in double.
#pragma once

#include <cstdint>

namespace gannet::rules {

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  uint64_t step;   // 1 at the first update
  bool decoupled;  // AdamW's decay; otherwise the decay is added to the gradient
  bool bias_correction;
};

}  // namespace gannet::rules
