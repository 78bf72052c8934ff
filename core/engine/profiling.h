// The flops_profiler section: on rank 0 operators are observed during one micro-batch, the first of the step that it names.
// Before and after that step nothing is armed.
#pragma once

#include <gannet/engine.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "observe/timers.h"

namespace gannet {

namespace profiler {
class Recorder;
}
namespace zero {
class Observing;
}

class Profiling {
 public:
  explicit Profiling(EngineBase::Impl& impl);
  ~Profiling();

  void begin_forward();
  void finish_forward();  // the model's is over; what follows until end_forward is the engine's
  void end_forward();
  void pause();  // what follows until begin_backward is the engine's
  void begin_backward();
  void end_backward();
  // At a boundary: writes the report where its step was the profiled one. True: all is done.
  bool report();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point now() const;  // when the device has done what it was given
  void write(const std::string& text) const;

  EngineBase::Impl& impl_;
  std::shared_ptr<profiler::Recorder> recorder_;
  std::unique_ptr<zero::Observing> observing_;  // from the forward to the end of its backward
  std::optional<Clock::time_point> forward_began_;
  Clock::time_point backward_began_{};
  bool is_done_ = false;
  double forward_seconds_ = 0, backward_seconds_ = 0;
  Timers::Times before_;  // the step
};

}  // namespace gannet
