// A progress line for training, on standard error; draws nothing unless is_shown.
#pragma once

#include <chrono>
#include <cstdint>

namespace gannet {

class ProgressBar {
 public:
  static bool is_terminal();  // whether standard error is a terminal
  ProgressBar(bool is_shown, int64_t steps) : is_shown_(is_shown), steps_(steps), began_(Clock::now()), last_(began_) {}
  void show(int64_t step);  // draws at most a few times a second
  void clear();             // called before a log line is printed
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(int64_t step);
  bool is_shown_, is_drawn_ = false;
  int64_t steps_, first_ = -1;
  Clock::time_point began_, last_;
};

}  // namespace gannet
