// The warm-up curve: from 0 to 1 over warmup_num_steps, logarithmic or linear.
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

  Warmup(const sdk::HostServices& host, const sdk::Params& params)
      : steps_(std::max<int64_t>(2, params.integer("warmup_num_steps"))), linear_(params.text("warmup_type") == "linear") {
    const std::string type = params.text("warmup_type");
    if (type != "log" && type != "linear")
      host.warn("warmup_type '" + type + "' is neither log nor linear: log is used, as DeepSpeed does");
  }

  int64_t steps() const { return steps_; }  // at least 2, so that ln(steps) divides
  bool is_over(int64_t i) const { return i >= steps_; }
  double at(int64_t i) const {
    if (is_over(i)) return 1;
    const double n = static_cast<double>(steps_);
    return linear_ ? static_cast<double>(i) / n : std::log(static_cast<double>(i + 1)) / std::log(n);
  }

 private:
  int64_t steps_;
  bool linear_;
};

}  // namespace gannet::schedulers
