#include "grads/skip_policy.h"

#include <gannet/error.h>

#include "base/format.h"
#include "base/text.h"

namespace gannet {

void SkipPolicy::check_may_skip(int64_t step, const std::string& why) const {
  if (!skips)
    throw Error(ErrorCode::kNonFinite,
                formatted("step {}: {}; the step was not taken and the parameters are as before it", step, why),
                "look for a too large learning rate or a bad sample; get_lr() and the batch of this step are where to begin");
}

std::string SkipPolicy::reason(int64_t step, const std::string& why, int64_t consecutive, const LossScaler& scaler) const {
  std::string reason = formatted("step {} skipped: {}", step, why);
  bool scale_falls = false;
  if (is_fp16) {
    LossScaler after = scaler;
    after.update(true);  // throws when the scale is at its minimum
    scale_falls = after.scale() < scaler.scale();
    reason += after.scale() == scaler.scale()
                  ? formatted("; the loss scale stays {}", short_number(scaler.scale()))
                  : formatted("; the loss scale goes from {} to {}", short_number(scaler.scale()), short_number(after.scale()));
  }
  if (scale_can_mend && !scale_falls && consecutive > max_consecutive)
    throw Error(ErrorCode::kNonFinite,
                formatted("{}, as in the {} skipped steps in a row before it: fp16.hysteresis takes more overflows than that",
                          reason, consecutive - 1),
                "lower fp16.hysteresis, or raise gannet.max_consecutive_skips");
  if (!scale_can_mend && consecutive > max_consecutive)
    throw Error(ErrorCode::kNonFinite, formatted("{}; it is the {}th in a row", reason, consecutive),
                formatted("the run does not recover by itself: {}lower the learning rate or look at the data "
                          "(gannet.max_consecutive_skips sets the limit)",
                          is_fp16 && scaler.scale() > 1
                              ? formatted("lower fp16.loss_scale, which is fixed at {} (0 is a dynamic one, which finds its "
                                          "value); if that does not help, ",
                                          short_number(scaler.scale()))
                              : ""));
  return reason;
}

}  // namespace gannet
