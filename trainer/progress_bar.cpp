#include "progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace gannet {

bool ProgressBar::is_terminal() { return isatty(STDERR_FILENO) == 1; }

void ProgressBar::show(int64_t step) {
  if (!is_shown_) return;
  if (first_ < 0) first_ = step - 1;
  const auto now = Clock::now();
  if (is_drawn_ && now - last_ < std::chrono::milliseconds(200) && step < steps_) return;
  last_ = now;
  draw(step);
}

void ProgressBar::draw(int64_t step) {
  constexpr int64_t kWidth = 30;
  const int64_t full = steps_ > 0 ? std::min(kWidth, kWidth * step / steps_) : 0;
  const double seconds = std::chrono::duration<double>(last_ - began_).count();
  const double rate = seconds > 0 ? static_cast<double>(step - first_) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(steps_ - step) / rate : 0;
  std::fprintf(stderr, "\r\x1b[K[%s%s] %lld/%lld  %.2f updates/s, %.0f s left", std::string(full, '#').c_str(),
               std::string(kWidth - full, '.').c_str(), static_cast<long long>(step), static_cast<long long>(steps_), rate, left);
  std::fflush(stderr);
  is_drawn_ = true;
}

void ProgressBar::clear() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
  is_drawn_ = false;
}

void ProgressBar::finish() {
  if (is_drawn_) std::fputc('\n', stderr);
  is_drawn_ = is_shown_ = false;
}

}  // namespace gannet
