// Measures the time of a step by phase, for the metrics file, the monitors, wall_clock_breakdown
// and the trace. It takes two clock reads per phase and allocates nothing.
//
//   Timers::Scope timed(timers, TimedPhase::kUpdate);             // the engine's thread is in this phase
//   { Timers::Wait waited(timers, TimedPhase::kOffload); ... }    // any thread waits, within the phase of the engine's thread
//   (timers.now() - before).own(TimedPhase::kUpdate);             // seconds, without nested phases
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "observe/trace.h"

namespace gannet {

enum class TimedPhase : uint8_t {
  kForward,
  kEvaluate,  // a forward that is not part of a step
  kBackward,
  kReduce,  // the part of the wait for gradient reduction that backward does not hide
  kStep,    // step() at an accumulation boundary; contains the next five phases
  kCheck,   // the gradient norm and the overflow check
  kUpdate,
  kPublish,     // the wait until every rank has the new parameters
  kForget,      // gradients release their memory
  kOffload,     // the wait until pages of a slower tier are read or written
  kGather,      // the wait until parameters are gathered and the ranks are in step (stage 3)
  kPipe,        // the wait for activations and gradients of other stages of a pipeline
  kCheckpoint,  // saving and loading
  kTell,        // the monitors themselves
  kNone,        // the program's own code
};
inline constexpr size_t kTimedCount = static_cast<size_t>(TimedPhase::kNone);
const char* name_of(TimedPhase phase);  // "forward"

class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  // The time spent in each phase up to a moment, or between two moments. The accessors return
  // seconds.
  struct Times {
    std::array<std::array<int64_t, kTimedCount>, kTimedCount + 1> ns{};  // [enclosing phase][phase]

    Times operator-(const Times& earlier) const;
    double within(TimedPhase around, TimedPhase phase) const {
      return 1e-9 * static_cast<double>(ns[static_cast<size_t>(around)][static_cast<size_t>(phase)]);
    }
    double whole(TimedPhase phase) const;  // including nested phases
    double own(TimedPhase phase) const;    // without nested phases, so that the sum over all phases is at most the elapsed time
    // The phases that occurred, by name. step() itself is left out, since its parts are reported.
    std::vector<std::pair<std::string, double>> phases() const;
  };
  Times now() const;

  class Scope {
   public:
    Scope(Timers& timers, TimedPhase phase)
        : timers_(timers),
          phase_(phase),
          around_(timers.current_.exchange(phase, std::memory_order_relaxed)),
          began_(Clock::now()) {}
    ~Scope() {
      timers_.current_.store(around_, std::memory_order_relaxed);
      timers_.add(around_, phase_, began_);
    }
    Scope(const Scope&) = delete;

   private:
    Timers& timers_;
    TimedPhase phase_, around_;
    Clock::time_point began_;
  };

  class Wait {
   public:
    Wait(Timers& timers, TimedPhase phase) : timers_(timers), phase_(phase), began_(Clock::now()) {}
    ~Wait() { timers_.add(timers_.current_.load(std::memory_order_relaxed), phase_, began_); }
    Wait(const Wait&) = delete;

   private:
    Timers& timers_;
    TimedPhase phase_;
    Clock::time_point began_;
  };

  observe::Trace* trace = nullptr;  // null: there is no trace
  bool is_traced() const { return trace && trace->is_on(); }

 private:
  void add(TimedPhase around, TimedPhase phase, Clock::time_point began) {
    const auto ended = Clock::now();
    ns_[static_cast<size_t>(around)][static_cast<size_t>(phase)].fetch_add(
        std::chrono::duration_cast<std::chrono::nanoseconds>(ended - began).count(), std::memory_order_relaxed);
    if (is_traced()) trace->span(name_of(phase), began, ended);
  }

  // [enclosing phase, including kNone][phase], in ns since construction. The counters are atomic,
  // because autograd's threads wait as well, and relaxed, because they order nothing.
  std::array<std::array<std::atomic<int64_t>, kTimedCount>, kTimedCount + 1> ns_{};
  // The phase of the engine's thread. A Wait on another thread counts as nested in it.
  std::atomic<TimedPhase> current_{TimedPhase::kNone};
};

// The five timings that DeepSpeed logs and sends to its monitors, in milliseconds.
struct Breakdown {
  double forward = 0, backward = 0, backward_inner = 0, backward_allreduce = 0, step = 0;
  explicit Breakdown(const Timers::Times& times);
  // "time (ms) | fwd: 1.00 | bwd: 2.00 | bwd_inner: 1.90 | bwd_allreduce: 0.10 | step: 0.50"; `suffix`: "_microstep" or "".
  std::string to_string(const char* suffix) const;
};

}  // namespace gannet
