// The charts of a run: those that its records have values for.
#pragma once

#include <vector>

#include "report/chart.h"

namespace gannet::report {

struct Charts {
  std::vector<Chart> all;
  std::vector<std::string> notes;  // what was left out, and why
};

Charts charts_of(const Records& records, const Buckets& buckets);

// What is counted or measured by step, for the tiles and the tables too.
Extract loss_of();
Extract rate_of(size_t count);  // of the counts' names, a second
Extract samples_rate();
double half_life(const Records& records);  // of the smoothed loss, in steps

}  // namespace gannet::report
