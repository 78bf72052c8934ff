#include "engine/step_reporter.h"

#include <ATen/TensorOperators.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "tensor/host_meter.h"

namespace gannet {

void StepReporter::begin_forward(bool trains) {
  if (monitor_) monitor_->flush_if_due();
  if (boundary_ || !trains) return;
  boundary_ = Timers::Clock::now();
  before_ = timers_.now();
  if (HostMeter* const meter = HostMeter::here(); meter && is_metered_) meter->begin();
}

void StepReporter::add_loss(const at::Tensor& loss, double weight) {
  has_loss_ = true;
  const at::Tensor value = loss.detach().reshape({}).to(at::kDouble);
  if (value.is_cpu()) {
    loss_ += weight * value.item<double>();
    return;
  }
  const at::Tensor part = value * weight;
  device_loss_ = device_loss_.defined() ? device_loss_ + part : part;
}

void StepReporter::fetch_loss() {
  if (!device_loss_.defined()) return;
  loss_ += device_loss_.item<double>();
  device_loss_.reset();
}

double StepReporter::mean_loss() {
  fetch_loss();
  if (misses_losses_) return std::numeric_limits<double>::quiet_NaN();  // on every rank
  // At a boundary, before the report, the last micro-batch is not counted yet.
  double sums[] = {loss_, has_loss_ ? static_cast<double>(micro_batches_ + 1) : 0};
  if (ranks_.size() > 1) ranks_.all_reduce(sums, 2);
  return sums[1] > 0 ? sums[0] / sums[1] : std::numeric_limits<double>::quiet_NaN();
}

void StepReporter::count(std::string_view name, int64_t number) {
  const auto found = std::find_if(counts_.begin(), counts_.end(), [&](const NamedCount& one) { return one.name == name; });
  if (found != counts_.end())
    found->number += number;
  else
    counts_.push_back({std::string(name), number});
}

void StepReporter::record(std::string_view name, double value) {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& one) { return one.first == name; });
  if (found != values_.end())
    found->second = value;
  else
    values_.emplace_back(std::string(name), value);
}

// Adds the names that some rank has counted for the first time: rank 0's first, then those of the
// other ranks. Afterwards every rank has the same list.
void StepReporter::agree_on_names() {
  std::string mine;
  for (size_t c = known_; c < counts_.size(); ++c) mine += counts_[c].name + '\0';
  for (const std::string& texts : ranks_.gather_texts(mine))
    for (size_t at = 0; at < texts.size();) {
      const std::string name = texts.substr(at, texts.find('\0', at) - at);
      at += name.size() + 1;
      auto found = std::find_if(counts_.begin(), counts_.end(), [&](const NamedCount& one) { return one.name == name; });
      if (found == counts_.end()) found = counts_.insert(counts_.end(), {name});
      if (found->is_known) continue;
      found->is_known = true;
      std::rotate(counts_.begin() + static_cast<std::ptrdiff_t>(known_), found, found + 1);
      ++known_;
    }
}

// Runs one all-reduce over the loss, its micro-batch count, a flag for a rank with a new name, and
// the known counts. A step with a new name costs two more exchanges.
void StepReporter::add_up(observe::Step& step) {
  fetch_loss();
  if (ranks_.size() == 1) {
    known_ = counts_.size();
  } else {
    sums_.assign({loss_, has_loss_ ? static_cast<double>(micro_batches_) : 0, known_ < counts_.size() ? 1.0 : 0.0});
    for (size_t c = 0; c < known_; ++c) sums_.push_back(static_cast<double>(counts_[c].number));
    ranks_.all_reduce(sums_.data(), sums_.size());
    loss_ = sums_[0];
    micro_batches_ = static_cast<int64_t>(sums_[1]);
    has_loss_ = micro_batches_ > 0;
    const size_t before = known_;
    for (size_t c = 0; c < before; ++c) counts_[c].number = static_cast<int64_t>(sums_[3 + c]);
    if (sums_[2] > 0) {
      agree_on_names();
      sums_.clear();
      for (size_t c = before; c < known_; ++c) sums_.push_back(static_cast<double>(counts_[c].number));
      ranks_.all_reduce(sums_.data(), sums_.size());
      for (size_t c = before; c < known_; ++c) counts_[c].number = static_cast<int64_t>(sums_[c - before]);
    }
  }
  if (has_loss_) step.loss = loss_ / static_cast<double>(std::max<int64_t>(micro_batches_, 1));
  for (const NamedCount& one : counts_) step.counts.emplace_back(one.name, one.number);
}

StepReporter::~StepReporter() {
  if (monitor_ && !values_.empty()) monitor_->values({last_step_, last_samples_, std::move(values_)});
}

void StepReporter::step(observe::Step step, const StepBoundary& boundary, bool with_breakdown, bool flush) {
  const Timers::Times times = boundary.times - before_;
  step.seconds = boundary_ ? std::chrono::duration<double>(boundary.at - *boundary_).count() : 0;
  boundary_ = boundary.at;
  before_ = boundary.times;
  add_up(step);
  if (monitor_) {
    step.phases = times.phases();
    if (with_breakdown) {
      const Breakdown parts(times);
      step.elapsed = {{"forward", parts.forward},
                      {"backward", parts.backward},
                      {"backward_inner", parts.backward_inner},
                      {"backward_allreduce", parts.backward_allreduce},
                      {"step", parts.step}};
    }
    step.values = std::move(values_);
    last_step_ = step.step;
    last_samples_ = step.samples;
    step.memory_bytes = resident_bytes();
    monitor_->step(step);
    if (flush) monitor_->flush();
  }
  values_.clear();
  if (HostMeter* const meter = HostMeter::here(); meter && is_metered_) meter->begin();
  forget_step();
}

void StepReporter::forget_loss() {
  misses_losses_ = false;
  device_loss_.reset();
  loss_ = 0;
  has_loss_ = false;
  micro_batches_ = 0;
}

void StepReporter::forget_step() {
  forget_loss();
  for (NamedCount& one : counts_) one.number = 0;
  if (!ended_) return;
  loss_ = ended_->loss;
  has_loss_ = ended_->has_loss;
  micro_batches_ = ended_->micro_batches;
  for (size_t c = 0; c < ended_->counts.size(); ++c) counts_[c].number = ended_->counts[c];
}

void StepReporter::end_pass() {
  fetch_loss();
  ended_ = EndedPasses{loss_, has_loss_, micro_batches_, {}};
  for (const NamedCount& one : counts_) ended_->counts.push_back(one.number);
}

void StepReporter::error(int64_t step, const std::string& text) {
  event("error", step, text);
  forget_step();
}

void StepReporter::event(std::string what, int64_t step, std::string text) {
  if (monitor_) monitor_->event({step, std::move(what), std::move(text)});
}

int64_t resident_bytes() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128] = {};
  const ssize_t size = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  long long whole = 0, resident = 0;
  if (size <= 0 || std::sscanf(text, "%lld %lld", &whole, &resident) != 2) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace gannet
