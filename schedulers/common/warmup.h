// The warm-up curve, which rises from 0 to 1 over warmup_num_steps, logarithmically or linearly.
//
// DeepSpeed sets the first rate at construction and again at the first step, so the first two
// updates use it. Without repeat_first_step every update has its own rate, as in transformers, and a
// linear warm-up may also last for only 0 or 1 updates.
#pragma once

#include <algorithm>
#include <cmath>

#include "schedulers/common/schedule.h"

namespace gannet::schedulers {

class Warmup {
 public:
  static constexpr gannet_param_spec kNumSteps =
      sdk::at_least(sdk::integer("warmup_num_steps", "1000", "steps from the minimum to the maximum; below 2: 2"), 0);
  static constexpr gannet_param_spec kType = sdk::text("warmup_type", "\"log\"", nullptr, "log or linear");
  static constexpr gannet_param_spec kRepeats =
      sdk::boolean("repeat_first_step", "true",
                   "the first two updates both have the first rate, as DeepSpeed's; false: each has its own, as transformers'");

  Warmup(const sdk::HostServices& host, const sdk::Params& params, bool repeats_first_step = true)
      : steps_(params.integer("warmup_num_steps")),
        linear_(params.text("warmup_type") == "linear"),
        repeats_(repeats_first_step) {
    if (repeats_ || !linear_) steps_ = std::max<int64_t>(2, steps_);  // so that the division by ln(steps) is possible
    const std::string type = params.text("warmup_type");
    if (type != "log" && type != "linear")
      host.warn("warmup_type '" + type + "' is neither log nor linear: log is used, as DeepSpeed does");
  }

  int64_t steps() const { return steps_; }
  bool repeats_first_step() const { return repeats_; }
  // Converts DeepSpeed's i, which is 0 for the update after the first one, to the formulas' i.
  int64_t iteration(int64_t deepspeeds) const { return deepspeeds + (repeats_ ? 0 : 1); }
  bool is_over(int64_t i) const { return i >= steps_; }
  double at(int64_t i) const {
    if (is_over(i)) return 1;
    const double n = static_cast<double>(steps_);
    return linear_ ? static_cast<double>(i) / n : std::log(static_cast<double>(i + 1)) / std::log(n);
  }

 private:
  int64_t steps_;
  bool linear_, repeats_;
};

}  // namespace gannet::schedulers
