// Progress line of training on a terminal; draws nothing elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

namespace gannet {

class ProgressBar {
 public:
  static bool is_terminal();  // the standard error output
  ProgressBar(bool is_shown, int64_t steps) : is_shown_(is_shown), steps_(steps), began_(Clock::now()), last_(began_) {}
  void show(int64_t step);  // a few times a second
  void clear();             // before a line of log
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t step);
  bool is_shown_, is_drawn_ = false;
  int64_t steps_, first_ = -1;
  Clock::time_point began_, last_;
};

}  // namespace gannet
