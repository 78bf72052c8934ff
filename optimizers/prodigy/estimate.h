// Prodigy's estimate d of the distance to the solution in a step, in double, from the model's sums
// and the states that are kept once per group.
#pragma once

#include <cmath>
#include <cstdint>
#include <gannet/sdk_rule.hpp>

namespace gannet::rules {

// Indices among the states.
inline constexpr uint64_t kEstimate = 4, kLargest = 5, kNumerator = 6, kSteps = 7;

struct ProdigyEstimate {
  double d;              // before the step
  double beta3, take3;   // s <- beta3 s + take3 g
  double progress_rate;  // factor of this group's <g, p0 - p>
  double numerator = 0;  // after the step, like the following two
  double largest, next;
  double rate = 0;            // of this step; 0 if the step moves no parameter
  bool is_estimated = false;  // false if all gradients or all learning rates have been 0 so far
  bool moves = false;         // also false if the learning rate is 0

  // `step` is a Step, in sums() and update(), or a GroupStep, in end_step(). The sums are those of
  // kSums, over all groups, so that the groups have one estimate. They are 0 in sums(), which uses
  // only beta3, take3 and progress_rate.
  template <class AnyStep>
  explicit ProdigyEstimate(const AnyStep& step) {
    const auto& params = step.params();
    const double lr = step("lr"), beta1 = step("betas", 0), beta2 = step("betas", 1), d0 = params.number("d0");
    d = next = step.template kept<double>(kEstimate);
    largest = step.template kept<double>(kLargest);
    const double k = step.template kept<double>(kSteps);
    const double correction =
        params.flag("use_bias_correction") ? std::sqrt(1 - std::pow(beta2, k + 1)) / (1 - std::pow(beta1, k + 1)) : 1;
    const double scaled = d * lr * correction, decay = params.has("beta3") ? params.number("beta3") : std::sqrt(beta2);
    beta3 = lr > 0 ? decay : 1;
    take3 = lr > 0 ? d / d0 * (params.flag("safeguard_warmup") ? d : scaled) : 0;
    progress_rate = lr > 0 ? d / d0 * scaled : 0;
    const double progress = step.sum(0), distance = step.sum(1);
    is_estimated = distance != 0;
    moves = lr > 0 && is_estimated;
    if (moves) rate = scaled;
    if (!is_estimated) return;
    numerator = decay * step.template kept<double>(kNumerator) + progress;
    const double found = params.number("d_coef") * numerator / distance;
    const double base = d == d0 && found > d ? found : d;
    if (found > largest) largest = found;
    next = largest;
    if (params.has("growth_rate") && base * params.number("growth_rate") < next) next = base * params.number("growth_rate");
  }
};

}  // namespace gannet::rules
