// The scalars of one AdamW8bit step, for fp32 masters.
#pragma once

#include <cmath>
#include <cstdint>

namespace gannet::rules {

struct Adam8bitStep {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inverse_root_bias2, eps, minus_step_size, decay;  // 1/sqrt(1 - b2^t), -lr/(1 - b1^t), -lr * weight decay

  Adam8bitStep(double lr, double first, double second, double epsilon, double weight_decay, uint64_t step)
      : beta1(static_cast<float>(first)),
        one_minus_beta1(1 - beta1),
        beta2(static_cast<float>(second)),
        one_minus_beta2(1 - beta2),
        inverse_root_bias2(static_cast<float>(1 / std::sqrt(1 - std::pow(double{beta2}, static_cast<double>(step))))),
        eps(static_cast<float>(epsilon)),
        minus_step_size(static_cast<float>(-lr / (1 - std::pow(double{beta1}, static_cast<double>(step))))),
        decay(-static_cast<float>(lr) * static_cast<float>(weight_decay)) {}
};

}  // namespace gannet::rules
