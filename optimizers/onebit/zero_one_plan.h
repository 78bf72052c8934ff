// The schedule of 0/1 Adam's steps. It depends only on the step number, so a resumed run needs no
// other state. Steps are counted from 1.
//
//   variance phase    up to var_freeze_step. The variance is updated at multiples of an interval
//                     that begins at 1 and doubles after every var_update_scaler updates
//   local phase       after it. The ranks' updates are averaged at multiples of an interval that
//                     begins at 1 and doubles every local_step_scaler steps, up to
//                     local_step_clipper
#pragma once

#include <algorithm>
#include <cstdint>

namespace gannet::rules {

struct ZeroOnePlan {
  uint64_t var_freeze_step, var_update_scaler, local_step_scaler, local_step_clipper;

  bool is_local(uint64_t step) const { return step > var_freeze_step; }

  // Takes at most log2(step) iterations.
  uint64_t var_interval(uint64_t step) const {
    uint64_t interval = 1, last = var_update_scaler;  // the step of the last update at this interval
    while (step > last) {
      interval *= 2;
      last = (last / interval + var_update_scaler) * interval;
    }
    return interval;
  }
  bool updates_variance(uint64_t step) const { return !is_local(step) && step % var_interval(step) == 0; }

  uint64_t local_interval(uint64_t step) const {
    const uint64_t doublings = (step - var_freeze_step - 1) / local_step_scaler;
    return doublings < 63 ? std::min(local_step_clipper, uint64_t{1} << doublings) : local_step_clipper;
  }
  bool averages_updates(uint64_t step) const { return is_local(step) && step % local_interval(step) == 0; }
};

}  // namespace gannet::rules
