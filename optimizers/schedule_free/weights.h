// The weight of a step in Schedule-Free's average of iterates, computed in double on the host, and
// the values that are kept between steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace gannet::rules {

// The indices of the states: first two per-element states, then the group-wide ones.
enum ScheduleFreeState : uint64_t {
  kAverageBase = 0,
  kSecondMoment = 1,
  kStepCount = 2,
  kWeightSum = 3,
  kLargestRate = 4,
  kFirstBeta = 5
};

struct ScheduleFreeWeight {
  double lr;            // including warm-up
  double weight_sum;    // sum over all steps up to and including this one
  double largest_rate;  // the largest learning rate so far
  double share;         // weight of this step's iterate in the average: weight / weight_sum

  // `steps`, `weight_sum_before` and `largest_before` are the values before this step.
  ScheduleFreeWeight(double rate, double warmup_steps, double power_of_step, double power_of_rate, int64_t steps,
                     double weight_sum_before, double largest_before) {
    const double step = static_cast<double>(steps) + 1;
    lr = step < warmup_steps ? rate * step / warmup_steps : rate;
    largest_rate = std::max(lr, largest_before);
    const double weight = std::pow(step, power_of_step) * std::pow(largest_rate, power_of_rate);
    weight_sum = weight_sum_before + weight;
    share = weight_sum > 0 ? weight / weight_sum : 0;
  }
};

// y and z depend on the first beta, so a resumed run keeps it: with a different one from the
// config, the x computed from them would be wrong.
inline double first_beta(double kept, double of_config) { return kept != 0 ? kept : of_config; }

}  // namespace gannet::rules
