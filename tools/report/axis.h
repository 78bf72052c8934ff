// Axes: round ticks, and the position of a value between the ends.
//
//   const Axis axis = Axis::linear(1.93, 5.61);   // 1 to 6 with a tick at each integer
//   axis.place(2.0);                              // 0.2: from the bottom, 0 to 1
#pragma once

#include <string>
#include <vector>

namespace gannet::report {

struct Tick {
  double value;
  std::string label;
};

class Axis {
 public:
  static Axis linear(double low, double high, int wanted_ticks = 5);  // ends at round numbers
  static Axis log10(double low, double high);                         // both positive
  static Axis powers_of_two(double low, double high);                 // both positive
  static Axis steps(double first, double last);                       // ends exactly there; whole ticks

  double place(double value) const;  // held between 0 and 1
  const std::vector<Tick>& ticks() const { return ticks_; }
  double high() const { return high_; }

 private:
  double low_ = 0, high_ = 1;
  bool is_log_ = false;
  std::vector<Tick> ticks_;
};

}  // namespace gannet::report
