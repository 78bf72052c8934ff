#include "observe/monitor.h"

#include <cstdio>

#include "base/format.h"
#include "observe/writers.h"

namespace gannet::observe {

bool is_wanted(const config::Settings& settings) {
  return !settings.metrics_path.empty() || settings.tensorboard.enabled || settings.csv_monitor.enabled;
}

Monitor::Monitor(const config::Settings& settings, const Run& run) {
  if (!settings.metrics_path.empty()) writers_.push_back(metrics_file(settings.metrics_path));
  if (settings.csv_monitor.enabled) writers_.push_back(csv_files(settings.csv_monitor.folder()));
  if (settings.tensorboard.enabled) writers_.push_back(tensorboard_events(settings.tensorboard.folder()));
  for (auto& writer : writers_) writer->run(run);
  flush();
}

Monitor::~Monitor() = default;  // the writers write pending data in their destructors

void Monitor::step(const Step& step) {
  for (auto& writer : writers_) writer->step(step, time());
  has_news_ = true;
  flush_if_due();
}

void Monitor::values(const LateValues& late) {
  for (auto& writer : writers_) writer->values(late, time());
  has_news_ = true;
}

void Monitor::event(const Event& event) {
  for (auto& writer : writers_) writer->event(event, time());
  flush();  // events are rare, and of interest after a crash
}

void Monitor::flush() {
  for (auto& writer : writers_) writer->flush();
  flushed_ = Clock::now();
  has_news_ = false;
}

namespace {

std::string tag_of(const std::string& name) {
  return name.find('/') == std::string::npos ? formatted("Train/Samples/{}", name) : name;
}

}  // namespace

std::vector<std::pair<std::string, double>> scalars_of(const LateValues& late) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : late.values) scalars.emplace_back(tag_of(name), value);
  return scalars;
}

std::vector<std::pair<std::string, double>> scalars_of(const Step& step) {
  std::vector<std::pair<std::string, double>> scalars;
  const auto add = [&](const std::string& name, double value) { scalars.emplace_back(tag_of(name), value); };
  if (step.loss) add("train_loss", *step.loss);
  if (!step.next_lr.empty()) add("lr", step.next_lr[0]);
  if (step.has_loss_scale) add("loss_scale", step.next_loss_scale);
  for (const auto& [name, milliseconds] : step.elapsed) add(formatted("elapsed_time_ms_{}", name), milliseconds);
  if (step.grad_norm) add("grad_norm", *step.grad_norm);
  add("step_seconds", step.seconds);
  for (const auto& [name, number] : step.counts) {
    add(name, static_cast<double>(number));
    if (step.seconds > 0) add(formatted("{}_per_second", name), static_cast<double>(number) / step.seconds);
  }
  for (const auto& [name, value] : step.values) add(name, value);
  return scalars;
}

std::string bytes_text(uint64_t bytes) {
  char text[32];
  const auto size = static_cast<double>(bytes);
  if (size >= 1e9)
    std::snprintf(text, sizeof(text), "%.1f GB", size * 1e-9);
  else if (size >= 1e6)
    std::snprintf(text, sizeof(text), "%.1f MB", size * 1e-6);
  else
    std::snprintf(text, sizeof(text), "%.1f kB", size * 1e-3);
  return text;
}

}  // namespace gannet::observe
