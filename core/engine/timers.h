// Wall-clock time of the phases, for wall_clock_breakdown and steps_per_print.
#pragma once

#include <chrono>
#include <string>

namespace gannet {

class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the time until the scope ends to `milliseconds`.
  class Scope {
   public:
    explicit Scope(double& milliseconds) : milliseconds_(milliseconds), began_(Clock::now()) {}
    ~Scope() { milliseconds_ += std::chrono::duration<double, std::milli>(Clock::now() - began_).count(); }
    Scope(const Scope&) = delete;

   private:
    double& milliseconds_;
    Clock::time_point began_;
  };

  // Of the current step, all micro-batches together.
  double forward_ms = 0, backward_ms = 0, reduce_ms = 0, step_ms = 0;
  Clock::time_point forward_began{};

  // "time (ms) | fwd: 1.00 | bwd: 2.00 | bwd_allreduce: 0.10 | step: 0.50", and starts the next step from zero.
  std::string take_line();
};

}  // namespace gannet
