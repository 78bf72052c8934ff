// Implements the flops_profiler section: rank 0 observes operators during one micro-batch, the
// first of the configured step. Before and after that step, no observer is active.
#pragma once

#include <gannet/engine.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "observe/timers.h"

namespace gannet {

namespace profiler {
class OperatorRecorder;
}
namespace zero {
class ObserverScope;
}

class Profiling {
 public:
  explicit Profiling(EngineBase::Impl& impl);
  ~Profiling();

  void begin_forward();
  void finish_forward();  // the model's forward is over; until end_forward() only engine code runs
  void end_forward();
  void pause();  // until begin_backward() only engine code runs
  void begin_backward();
  void end_backward();
  // Called at a boundary. Writes the report if its step was the profiled one. Returns true once
  // profiling is over.
  bool report();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point now() const;  // the time once the device has finished its queued work
  void write(const std::string& text) const;

  EngineBase::Impl& impl_;
  std::shared_ptr<profiler::OperatorRecorder> recorder_;
  std::unique_ptr<zero::ObserverScope> observing_;  // set from a forward to the end of its backward
  std::optional<Clock::time_point> forward_began_;
  Clock::time_point backward_began_{};
  bool is_done_ = false;
  double forward_seconds_ = 0, backward_seconds_ = 0;
  Timers::Times before_;  // the timers at the start of the profiled step
};

}  // namespace gannet
