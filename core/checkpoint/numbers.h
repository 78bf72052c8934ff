// Validates numbers of a checkpoint that training relies on. A negative count would index before
// the data, and a non-finite learning rate would destroy the weights.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <string>

namespace gannet::checkpoint {

inline constexpr int64_t kMostCount = int64_t{1} << 53;  // larger counts are not exact as a double

// `where` is for the message: "run1/step4/manifest.json: 'global_steps'". All functions throw
// Error(kCorrupt).
int64_t checked_count(int64_t count, const std::string& where, int64_t least = 0, int64_t most = kMostCount);
// For a count stored as a floating-point number, such as Adam's step.
int64_t checked_count(double count, const std::string& where);
// For a hyperparameter of a group, which must be finite. If its name is lr, initial_lr, eps,
// weight_decay or momentum, it must be at least 0; betas must be from 0 to 1.
double checked_hyperparameter(const std::string& name, double number, const std::string& where);
double checked_loss_scale(double scale, const std::string& where);  // must be finite and above 0

}  // namespace gannet::checkpoint
