#include "report/series.h"

#include <algorithm>
#include <cmath>

namespace gannet::report {
namespace {

constexpr double kLargest = 1e300;  // larger values count as infinite, so that sums and differences of the others stay finite

}  // namespace

Buckets::Buckets(const std::vector<StepRecord>& steps, size_t limit) : steps_(&steps) {
  if (steps.empty()) return;
  first_ = steps.front().step;
  last_ = steps.back().step;
  const double width = std::max(1.0, static_cast<double>(last_ - first_ + 1) / static_cast<double>(limit));  // in steps
  of_.resize(steps.size());
  double end = -1;  // the first step after the current bucket, as an offset
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto offset = static_cast<double>(steps[i].step - first_);
    if (offset >= end) {
      end = (std::floor(offset / width) + 1) * width;
      ranges_.push_back({i, i, 0});
    }
    ranges_.back().end = i + 1;
    of_[i] = ranges_.size() - 1;
  }
  for (Range& range : ranges_)
    range.x = place((static_cast<double>(steps[range.begin].step) + static_cast<double>(steps[range.end - 1].step)) / 2);
}

double Buckets::place(double step) const {
  if (first_ == last_) return 0.5;
  return std::clamp((step - static_cast<double>(first_)) / static_cast<double>(last_ - first_), 0.0, 1.0);
}

size_t Buckets::bucket_at(int64_t step) const {
  const auto found = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [&](const Range& range) { return (*steps_)[range.end - 1].step < step; });
  return static_cast<size_t>(found - ranges_.begin());
}

Series series(const Buckets& buckets, const StepValue& extract) {
  Series series;
  series.points.resize(buckets.ranges().size());
  for (size_t b = 0; b < series.points.size(); ++b) {
    Point& point = series.points[b];
    double sum = 0;
    int64_t count = 0;
    for (size_t i = buckets.ranges()[b].begin; i < buckets.ranges()[b].end; ++i) {
      const StepRecord& step = buckets.steps()[i];
      const std::optional<double> value = extract(step);
      if (!value) continue;
      if (!(std::fabs(*value) < kLargest)) {
        ++point.bad;
        continue;
      }
      if (series.known == 0) series.first = *value, series.first_step = step.step;
      if (series.known == 0 || *value < series.low) series.low = *value, series.low_step = step.step;
      if (series.known == 0 || *value > series.high) series.high = *value, series.high_step = step.step;
      series.last = *value, series.last_step = step.step;
      ++series.known;
      point.low = count == 0 ? *value : std::min(point.low, *value);
      point.high = count == 0 ? *value : std::max(point.high, *value);
      sum += *value;
      ++count;
    }
    series.bad += point.bad;
    if (count == 0) continue;
    point.is_known = true;
    point.mean = sum / static_cast<double>(count);
    series.sum += sum;
  }
  return series;
}

std::vector<std::optional<double>> smoothed(const std::vector<StepRecord>& steps, const StepValue& extract, double half_life) {
  // Weighted sums over the steps on one side, x counted from the current step: 1, x, y, x^2, xy.
  struct Sums {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    void shift(double by, double keep) {  // shifts the origin of x
      xx += 2 * by * x + by * by * w;
      xy += by * y;
      x += by * w;
      for (double* sum : {&w, &x, &y, &xx, &xy}) *sum *= keep;
    }
  };
  const double keep = std::exp2(-1 / half_life);
  const auto value_at = [&](size_t i) {
    const auto value = extract(steps[i]);
    return value && std::fabs(*value) < kLargest ? value : std::nullopt;
  };
  std::vector<Sums> before(steps.size());  // including the step itself
  Sums sums;
  for (size_t i = 0; i < steps.size(); ++i) {
    sums.shift(-1, keep);
    if (const auto value = value_at(i)) sums.w += 1, sums.y += *value;
    before[i] = sums;
  }
  std::vector<std::optional<double>> values(steps.size());
  sums = {};
  for (size_t i = steps.size(); i-- > 0;) {
    sums.shift(1, keep);
    const Sums& left = before[i];
    const double w = left.w + sums.w, x = left.x + sums.x, y = left.y + sums.y, xx = left.xx + sums.xx, xy = left.xy + sums.xy;
    const double determinant = w * xx - x * x;
    if (w > 0) values[i] = determinant > 1e-9 * w * xx ? (xx * y - x * xy) / determinant : y / w;
    if (const auto value = value_at(i)) sums.w += 1, sums.y += *value;
  }
  return values;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace gannet::report
