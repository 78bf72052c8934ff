// What happens to a step whose gradients are not finite: it is skipped and, in fp16, the loss scale goes down; or it is an error.
//
//   const SkipPolicy policy{.skips = true, .is_fp16 = true, .scale_can_mend = true};
//   policy.check_may_skip(step, why);                                    // Error(kNonFinite) where it may not be
//   log_warning(policy.reason(step, why, consecutive_skips, scaler));    // or Error(kNonFinite): too many in a row
#pragma once

#include <cstdint>
#include <string>

#include "grads/loss_scaler.h"

namespace gannet {

struct SkipPolicy {
  bool skips = false;           // fp16, and bf16 with check_grad_overflow; else gradients that are not finite are an error
  bool is_fp16 = false;         // a loss scale goes with it
  bool scale_can_mend = false;  // the scale is dynamic: the next step may succeed with a lower one
  int64_t max_consecutive = 0;  // skipped steps in a row in which no loss scale went down

  /// `step`: the one at hand, counted from 1. `why`: the first element that is not finite.
  void check_may_skip(int64_t step, const std::string& why) const;
  /// The sentence for the log. `consecutive`: skipped steps in a row, this one included. Throws what the scaler would, where its
  /// scale cannot go down any more; the scaler stays as it is.
  std::string reason(int64_t step, const std::string& why, int64_t consecutive, const LossScaler& scaler) const;
};

}  // namespace gannet
