#include "report.h"

#include <gannet/error.h>
#include <gannet/value.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gpt2 {

MetricsFile::MetricsFile(const std::string& path, bool append) : path_(path) {
  if (path_.empty()) return;
  out_.open(path_, append ? std::ios::app : std::ios::trunc);
  if (!out_)
    throw gannet::Error(gannet::ErrorCode::kIo, "cannot write the metrics " + path_,
                        "name a file in a folder that exists and can be written");
}

void MetricsFile::write(const StepReport& report) {
  if (path_.empty()) return;
  const gannet::Value line = gannet::Dict{
      {"step", report.step},
      {"loss", report.loss},
      {"lr", report.lr},
      {"grad_norm", report.grad_norm ? gannet::Value(*report.grad_norm) : gannet::Value()},
      {"loss_scale", report.loss_scale},
      {"skipped", report.skipped},
      {"seconds", report.seconds},
  };
  out_ << line.to_json() << std::endl;  // flushed, so that readers can follow it and a crash loses nothing
  if (!out_) throw gannet::Error(gannet::ErrorCode::kIo, "cannot write the metrics " + path_, "is the disk full?");
}

Progress::Progress(int64_t first_step, int64_t steps, int64_t tokens_per_step, bool shown)
    : first_step_(first_step),
      steps_(steps),
      tokens_per_step_(tokens_per_step),
      every_(std::max<int64_t>(1, (steps - first_step) / 20)),
      shown_(shown),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::update(const StepReport& report) {
  if (!shown_ || (!terminal_ && report.step % every_ != 0 && report.step != first_step_ + 1 && report.step != steps_)) return;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const auto done_steps = static_cast<double>(report.step - first_step_);
  const int left = static_cast<int>(elapsed / done_steps * static_cast<double>(steps_ - report.step) + 0.5);
  char line[200];
  std::snprintf(line, sizeof(line), "step %ld/%ld  loss %.4f  lr %.2e  %.0f tokens/s  %d:%02d left%s",
                static_cast<long>(report.step), static_cast<long>(steps_), report.loss, report.lr,
                static_cast<double>(tokens_per_step_) * done_steps / elapsed, left / 60, left % 60,
                report.skipped ? "  (skipped)" : "");
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", line);
    return;
  }
  constexpr int kWidth = 24;
  const int done = static_cast<int>(kWidth * report.step / steps_);
  std::fprintf(stderr, "\r\033[K[%s%s] %s", std::string(done, '#').c_str(), std::string(kWidth - done, '.').c_str(), line);
  std::fflush(stderr);
}

void Progress::finish() {
  if (shown_ && terminal_) std::fputc('\n', stderr);
}

}  // namespace gpt2
