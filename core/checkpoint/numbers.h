// Numbers out of a checkpoint that training relies on, believed only where they can be true: a count that is negative indexes
// before the data, a rate that is not finite ruins the weights.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <string>

namespace gannet::checkpoint {

inline constexpr int64_t kMostCount = int64_t{1} << 53;  // beyond it a count is no longer exact as a double

// `where`: "run1/step4/manifest.json: 'global_steps'", for the message. All throw Error(kCorrupt).
int64_t checked_count(int64_t count, const std::string& where, int64_t least = 0, int64_t most = kMostCount);
// A count that is kept as a floating-point number: Adam's step.
int64_t checked_count(double count, const std::string& where);
// A number of an optimizer's group, by its name: finite; lr, eps, weight_decay and momentum at least 0, betas from 0 to 1.
double checked_hyperparameter(const std::string& name, double number, const std::string& where);
double checked_loss_scale(double scale, const std::string& where);  // finite, above 0

}  // namespace gannet::checkpoint
