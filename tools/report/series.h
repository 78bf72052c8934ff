// A run's steps in buckets that fit the width of a plot, and a series over them: the mean, minimum
// and maximum of each bucket.
//
//   const Buckets buckets(records.steps, 600);
//   const Series loss = series(buckets, [](const StepRecord& step) { return step.loss; });
//   loss.points[3].mean;
//
// If a run has no more steps than there are buckets, each step has its own bucket.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "report/records.h"

namespace gannet::report {

class Buckets {
 public:
  struct Range {
    size_t begin = 0, end = 0;  // indices into steps(); never empty
    double x = 0;               // 0 to 1: position of its middle between the first step and the last
  };

  Buckets(const std::vector<StepRecord>& steps, size_t limit);

  const std::vector<StepRecord>& steps() const { return *steps_; }
  const std::vector<Range>& ranges() const { return ranges_; }
  bool is_exact() const { return ranges_.size() == steps_->size(); }  // each bucket has one step
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  double place(double step) const;  // 0 to 1, even for a step that has no record
  size_t bucket_of(size_t index) const { return of_[index]; }
  size_t bucket_at(int64_t step) const;  // of a step that has a record

 private:
  const std::vector<StepRecord>* steps_;
  std::vector<Range> ranges_;
  std::vector<size_t> of_;  // the bucket of each step
  int64_t first_ = 0, last_ = 0;
};

struct Point {
  bool is_known = false;  // the bucket has a finite value
  double mean = 0, low = 0, high = 0;
  int64_t bad = 0;  // values that are NaN or infinite
};

struct Series {
  std::vector<Point> points;  // by bucket
  // Over single steps, not buckets, and over finite values only, except for `bad`:
  int64_t known = 0, bad = 0;
  double first = 0, last = 0, low = 0, high = 0, sum = 0;
  int64_t first_step = 0, last_step = 0, low_step = 0, high_step = 0;
  double mean() const { return known ? sum / static_cast<double>(known) : 0; }
};

using StepValue = std::function<std::optional<double>(const StepRecord&)>;

Series series(const Buckets& buckets, const StepValue& extract);

// For each step, the best-fitting straight line's value at that step; the weights of neighbours
// on both sides halve every `half_life` steps (local linear regression). The result does not lag and
// has no first-order bias at the ends. Non-finite values are skipped.
std::vector<std::optional<double>> smoothed(const std::vector<StepRecord>& steps, const StepValue& extract, double half_life);

// The `q` quantile of `values`.
double quantile(std::vector<double> values, double q);

}  // namespace gannet::report
