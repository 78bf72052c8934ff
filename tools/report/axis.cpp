#include "report/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "report/format.h"

namespace gannet::report {
namespace {

// 1, 2, 2.5 or 5 times a power of ten, at least `rough`.
double round_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

// All labels of an axis with the same number of decimals.
std::string tick_text(double value, double step, double largest) {
  if (largest >= 1e7 || largest < 1e-3) return number_text(std::fabs(value) < step * 1e-6 ? 0 : value);
  int decimals = 0;
  for (double unit = step; decimals < 6 && std::fabs(unit - std::round(unit)) > 1e-6 * unit; ++decimals) unit *= 10;
  if (decimals == 0) return with_commas(std::llround(value));
  char text[40];
  std::snprintf(text, sizeof(text), "%.*f", decimals, std::fabs(value) < step * 1e-6 ? 0.0 : value);
  return text;
}

}  // namespace

Axis Axis::linear(double low, double high, int wanted_ticks) {
  Axis axis;
  if (!(high > low)) {  // one value: some room around it, zero as it is
    const double room = std::max(std::fabs(high) * 0.5, 1e-9);
    low = low == 0 ? 0 : low - room;
    high = low == 0 ? 1 : high + room;
  }
  // A span that doubles cannot resolve next to its ends has no ticks of its own.
  const double step = round_step(std::max((high - low) / wanted_ticks, std::fabs(high) * 1e-12));
  axis.low_ = std::floor(low / step + 1e-9) * step;
  axis.high_ = std::ceil(high / step - 1e-9) * step;
  const double largest = std::max(std::fabs(axis.low_), std::fabs(axis.high_));
  const auto count = std::min<int64_t>(std::llround((axis.high_ - axis.low_) / step), 4L * wanted_ticks);
  for (int64_t i = 0; i <= count; ++i) {
    const double value = axis.low_ + static_cast<double>(i) * step;
    axis.ticks_.push_back({value, tick_text(value, step, largest)});
  }
  return axis;
}

Axis Axis::log10(double low, double high) {
  Axis axis;
  axis.is_log_ = true;
  if (!(high > low)) low *= 0.8, high *= 1.25;
  const double room = std::pow(high / low, 0.04);
  axis.low_ = low / room;
  axis.high_ = high * room;
  const double decades = std::log10(axis.high_ / axis.low_);
  const auto every = static_cast<int>(std::max(1.0, std::ceil(decades / 6)));
  for (int power = static_cast<int>(std::floor(std::log10(axis.low_))); power <= std::log10(axis.high_); ++power)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      if (value < axis.low_ || value > axis.high_ || (decades > 2.5 && (factor != 1 || power % every != 0))) continue;
      axis.ticks_.push_back({value, number_text(value)});
    }
  if (axis.ticks_.size() < 3) {
    const Axis even = linear(axis.low_, axis.high_, 5);
    axis.ticks_.clear();
    for (const Tick& tick : even.ticks())
      if (tick.value >= axis.low_ && tick.value <= axis.high_) axis.ticks_.push_back(tick);
  }
  return axis;
}

Axis Axis::powers_of_two(double low, double high) {
  Axis axis;
  axis.is_log_ = true;
  const double first = std::floor(std::log2(low) + 1e-9) - 1, last = std::ceil(std::log2(high) - 1e-9) + 1;
  axis.low_ = std::exp2(first);
  axis.high_ = std::exp2(last);
  const double every = std::max(1.0, std::ceil((last - first) / 6));
  for (double power = std::ceil(first / every) * every; power <= last; power += every)
    axis.ticks_.push_back({std::exp2(power), scale_text(std::exp2(power))});
  return axis;
}

Axis Axis::steps(double first, double last) {
  Axis axis;
  if (!(last > first)) {
    axis.low_ = first - 1;
    axis.high_ = first + 1;
    axis.ticks_.push_back({first, with_commas(std::llround(first))});
    return axis;
  }
  axis.low_ = first;
  axis.high_ = last;
  double step = std::max(1.0, round_step((last - first) / 6));
  if (step == 2.5) step = 5;  // steps are whole
  for (double value = std::ceil(first / step) * step; value <= last; value += step)
    axis.ticks_.push_back({value, with_commas(std::llround(value))});
  return axis;
}

double Axis::place(double value) const {
  if (is_log_ && value <= 0) return 0;
  const double at = is_log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return std::clamp(at, 0.0, 1.0);
}

}  // namespace gannet::report
