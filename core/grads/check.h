// The check and clip phases of a step: the norm of the full gradient, whether every element is
// finite, and the factor that the update applies to gradients.
//
//   const GradientCheck check = check_gradients(ranges, ranks, reducer.mean_factor() / scaler.scale());
//   if (check.finite) update(clip_factor(check.norm, limit, factor)); else skip(first_non_finite(ranges, ...));
//
// Gradients come from the reducer: summed over the ranks and scaled by the loss scale. A rank sees
// only its shards. The sums over all ranks decide, so that every rank gets the same result.
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

/// The groups of ranks that the norm is summed over.
/// `data`: the ranks with the other shards of the gradients; null if every rank has all of them.
/// `model`: the ranks with the other parts of the model (other stages, other boxes); null if this
/// rank has all of it.
/// `counts`: whether this rank adds the gradients that it shares with other ranks of `model`; one
/// of the ranks with the same parameters adds them. Every rank adds the boxes of split parameters
/// that only it has.
/// `experts`: the ranks with the other experts; null if there are none or `data` includes them.
/// `own`: the ranks whose gradients differ because of Range::has_unreduced_gradients; null if no
/// range has them. Their squares enter the norm as the mean over these ranks.
/// `unreduced_ratio`: a factor for those gradients in addition to `scale`.
struct NormRanks {
  HostGroup* data = nullptr;
  HostGroup* model = nullptr;
  bool counts = true;
  HostGroup* own = nullptr;
  double unreduced_ratio = 1;
  HostGroup* experts = nullptr;
};
/// Makes one pass over the gradients. `scale` converts them to this step's gradient.
GradientCheck check_gradients(const std::deque<Range>& ranges, const NormRanks& ranks, double scale);

/// Clipping is a factor for the update, not another pass over the gradients. Returns `factor`,
/// divided by (norm + 1e-6) / `limit` if that exceeds 1. `limit` 0: no clipping.
double clip_factor(double norm, double limit, double factor);

/// Names the first element that is not finite, in parameter order: "the gradient of 'h.0.weight' is
/// nan at element 3". Without one, reports that the norm is too large. `gather` is collective: it
/// collects one string from each rank with different gradients. All ranks return the same message.
std::string first_non_finite(const std::deque<Range>& ranges, bool loss_was_finite,
                             const std::function<std::vector<std::string>(const std::string&)>& gather);

}  // namespace gannet
