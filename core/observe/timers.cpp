#include "observe/timers.h"

#include <cstdio>

namespace gannet {

const char* name_of(TimedPhase phase) {
  static constexpr const char* kNames[] = {"forward", "evaluate", "backward",   "reduce", "step",
                                           "check",   "update",   "publish",    "forget", "offload",
                                           "gather",  "pipe",     "checkpoint", "tell",   ""};
  static_assert(std::size(kNames) == kTimedCount + 1);
  return kNames[static_cast<size_t>(phase)];
}

Timers::Times Timers::now() const {
  Times times;
  for (size_t around = 0; around <= kTimedCount; ++around)
    for (size_t phase = 0; phase < kTimedCount; ++phase)
      times.ns[around][phase] = ns_[around][phase].load(std::memory_order_relaxed);
  return times;
}

Timers::Times Timers::Times::operator-(const Times& earlier) const {
  Times between;
  for (size_t around = 0; around <= kTimedCount; ++around)
    for (size_t phase = 0; phase < kTimedCount; ++phase)
      between.ns[around][phase] = ns[around][phase] - earlier.ns[around][phase];
  return between;
}

double Timers::Times::whole(TimedPhase phase) const {
  double seconds = 0;
  for (size_t around = 0; around <= kTimedCount; ++around)
    if (around != static_cast<size_t>(phase))
      seconds += within(static_cast<TimedPhase>(around), phase);  // a wait inside the same phase is already included
  return seconds;
}

double Timers::Times::own(TimedPhase phase) const {
  double seconds = whole(phase);
  for (size_t inner = 0; inner < kTimedCount; ++inner)
    if (inner != static_cast<size_t>(phase)) seconds -= within(phase, static_cast<TimedPhase>(inner));
  return seconds;
}

std::vector<std::pair<std::string, double>> Timers::Times::phases() const {
  std::vector<std::pair<std::string, double>> named;
  for (size_t p = 0; p < kTimedCount; ++p) {
    const auto phase = static_cast<TimedPhase>(p);
    if (phase != TimedPhase::kStep && whole(phase) > 0) named.emplace_back(name_of(phase), own(phase));
  }
  return named;
}

Breakdown::Breakdown(const Timers::Times& times) {
  // step() also waits for the sums over ranks; that time is counted as part of backward.
  backward_allreduce = 1e3 * times.whole(TimedPhase::kReduce);
  backward_inner = 1e3 * (times.whole(TimedPhase::kBackward) - times.within(TimedPhase::kBackward, TimedPhase::kReduce));
  backward = backward_inner + backward_allreduce;
  forward = 1e3 * times.whole(TimedPhase::kForward);
  step = 1e3 * (times.whole(TimedPhase::kStep) - times.within(TimedPhase::kStep, TimedPhase::kReduce));
}

std::string Breakdown::to_string(const char* suffix) const {
  char line[320];
  std::snprintf(line, sizeof(line),
                "time (ms) | fwd%s: %.2f | bwd%s: %.2f | bwd_inner%s: %.2f | bwd_allreduce%s: %.2f | step%s: %.2f", suffix,
                forward, suffix, backward, suffix, backward_inner, suffix, backward_allreduce, suffix, step);
  return line;
}

}  // namespace gannet
