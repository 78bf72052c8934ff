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
StepValue rate_of_group(size_t group);  // the learning rate
StepValue phase_of(size_t phase);       // seconds
StepValue memory_of(size_t kind);       // bytes
StepValue times(const StepValue& extract, double factor);
StepValue value_of(size_t value);                                // an index into the values' names
std::optional<size_t> validation_value(const Records& records);  // the index of the value that is the validation loss
double half_life(const Records& records);                        // the half-life for smoothing the loss, in steps
constexpr size_t kMaxGroups = 7;                                 // groups with different learning rates: one colour each
constexpr size_t kMaxCounts = 4;                                 // charts of the program's counts
constexpr size_t kMaxValues = 16;                                // charts of the program's own values
constexpr int64_t kWorthSmoothing = 20;                          // the fewest values that are smoothed
bool allows_log(const Series& series);                           // whether a logarithmic axis can show it

}  // namespace gannet::report
