// Compares the results of two runs and finds their first difference.
#pragma once

#include "kit/optimizer/engine.h"

namespace gannet::kit {

// The tolerance of require_close for runs that add up sums in a different order.
inline constexpr double kReordered = 1e-6;

// Compares bit for bit. Throws CheckFailure with the tensor, the element and both values; `what`
// describes the comparison: "3 ranks against one".
void require_same(const TrainingResult& found, const TrainingResult& expected, const Problem& problem, const std::string& what);
// Compares the 2-norm of each tensor's difference relative to the norm of the expected tensor.
void require_close(const TrainingResult& found, const TrainingResult& expected, const Problem& problem, double tolerance,
                   const std::string& what);
// Throws CheckFailure if a parameter is NaN or infinite.
void require_finite(const TrainingResult& found, const Problem& problem);
// Throws CheckFailure unless all ranks have the same values in states that are not per element.
void require_ranks_agree(const TrainingResult& found);

}  // namespace gannet::kit
