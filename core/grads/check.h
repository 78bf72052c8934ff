// The phases check and clip of a step: the norm of the whole gradient, whether every element is finite, and the factor that the
// update multiplies gradients by.
//
//   const GradientCheck check = check_gradients(ranges, ranks, reducer.mean_factor() / scaler.scale());
//   if (check.finite) update(clip_factor(check.norm, limit, factor)); else skip(first_non_finite(ranges, ...));
//
// Gradients are as the reducer left them: summed over the ranks, scaled by the loss scale. A rank sees its shards; the sums of
// all ranks decide, so that every rank gets the same answer.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "interfaces/host_group.h"
#include "params/range.h"

namespace gannet {

struct GradientCheck {
  double norm = 0;  // averaged, unscaled, before clipping
  bool finite = true;
};

/// `data`: the ranks that have the other shards of the gradients, null where every rank has all of them;
/// `model`: the ranks that hold the other parts of the model (other stages, other boxes), null where this one has all of it;
/// `counts`: whether this rank adds what it shares with others there: of ranks with the same parameters one does. What it has
/// alone, boxes of split parameters, every rank adds.
/// `experts`: the ranks that hold the other experts, null where there are none or `data` has them;
/// `own`: the ranks whose gradients differ where Range::has_own_gradients, null where no range has; of those the mean over ranks
/// of the squares counts. `own_ratio`: what they are multiplied by beside `scale`.
struct NormRanks {
  HostGroup* data = nullptr;
  HostGroup* model = nullptr;
  bool counts = true;
  HostGroup* own = nullptr;
  double own_ratio = 1;
  HostGroup* experts = nullptr;
};
/// One pass over the gradients. `scale`: what turns them into this step's gradient.
GradientCheck check_gradients(const std::deque<Range>& ranges, const NormRanks& ranks, double scale);

/// Clipping is a number, not a pass: `factor`, divided by what the norm exceeds `limit` by; 0: no limit.
double clip_factor(double norm, double limit, double factor);

/// "the gradient of 'h.0.weight' is nan at element 3": the first in the order of the parameters. `gather`: a text of each
/// rank that has other gradients; they all call it, and get the same answer.
std::string first_non_finite(const std::deque<Range>& ranges, bool loss_was_finite,
                             const std::function<std::vector<std::string>(const std::string&)>& gather);

}  // namespace gannet
