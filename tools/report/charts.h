// The charts of a run, for the values that its records have.
#pragma once

#include <vector>

#include "report/chart.h"

namespace gannet::report {

struct Charts {
  std::vector<Chart> all;
  std::vector<std::string> notes;  // what was left out, and why
};

Charts charts_of(const Records& records, const Buckets& buckets);

// Values by step; the tiles and the tables use them as well.
StepValue loss_of();
StepValue rate_of(size_t count);  // per second; count: an index into the counts' names
StepValue samples_rate();
double half_life(const Records& records);  // the half-life for smoothing the loss, in steps

}  // namespace gannet::report
