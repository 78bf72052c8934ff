// Decides what happens to a step with non-finite gradients: either it is skipped, and the loss
// scale is reduced in fp16, or the step fails.
//
//   const SkipPolicy policy{.skips = true, .is_fp16 = true, .scale_can_mend = true};
//   policy.check_may_skip(step, why);                                    // throws Error(kNonFinite) unless it may be skipped
//   log_warning(policy.reason(step, why, consecutive_skips, scaler));    // or Error(kNonFinite): too many in a row
#pragma once

#include <cstdint>
#include <string>

#include "grads/loss_scaler.h"

namespace gannet {

struct SkipPolicy {
  bool skips = false;           // fp16, or bf16 with check_grad_overflow; otherwise non-finite gradients are an error
  bool is_fp16 = false;         // there is a loss scale
  bool scale_can_mend = false;  // the scale is dynamic, so the next step may succeed with a lower one
  int64_t max_consecutive = 0;  // maximum consecutive skips without lowering the loss scale

  /// `step`: the current step, counted from 1. `why`: the description of the first non-finite
  /// element.
  void check_may_skip(int64_t step, const std::string& why) const;
  /// Returns the log message. `consecutive`: number of consecutive skipped steps, including
  /// this one. Throws Error(kNonFinite) if it exceeds max_consecutive and the scale is not reduced,
  /// or the scaler's error if the scale is already at its minimum; does not change the scaler.
  std::string reason(int64_t step, const std::string& why, int64_t consecutive, const LossScaler& scaler) const;
};

}  // namespace gannet
