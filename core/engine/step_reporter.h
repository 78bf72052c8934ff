// What the engine collects for its monitors: losses, counts, the time of phases; at a boundary one small all-reduce makes them
// those of all ranks, and rank 0 hands them over. Every rank has one where the config asks for a monitor, and none else.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interfaces/host_group.h"
#include "observe/monitor.h"
#include "observe/timers.h"

namespace gannet {

// What had been when the last lines of a step were written.
struct Reported {
  Timers::Times micro_batch, step;  // wall_clock_breakdown's
  uint64_t bytes_sent = 0;          // by the Comm
};

class StepReporter {
 public:
  // `monitor`: rank 0's; null on the others.
  StepReporter(HostGroup& ranks, const Timers& timers, std::unique_ptr<observe::Monitor> monitor)
      : ranks_(ranks), timers_(timers), monitor_(std::move(monitor)) {}

  void begin_forward(bool trains);                       // the first that trains starts the clock of the first step
  void add_loss(const at::Tensor& loss, double weight);  // stays on its device; `weight`: 1 where a step's losses are averaged
  void end_micro_batch() { ++micro_batches_; }
  void forget_loss();  // so far, and its micro-batches: they are not the step's
  void fetch_loss();   // from its device, when that has just been waited for anyway
  void count(std::string_view name, int64_t number);
  void record(std::string_view name, double value);

  struct Boundary {  // when a step ended; what comes after it is the next one's
    Timers::Clock::time_point at;
    Timers::Times times;
  };
  Boundary boundary_now() const { return {Timers::Clock::now(), timers_.now()}; }
  // Ends a step. Every rank calls it; what it has of its own (loss, counts, times) fills the rest of `step`.
  void step(observe::Step step, const Boundary& boundary, bool with_breakdown, bool flush);
  void forget_step();                                 // it is not taken, or its pass in hand is not
  void end_pass();                                    // what there is so far stays whatever becomes of the next pass
  void forget_passes() { ended_.reset(); }            // of the step in hand: they are over
  void error(int64_t step, const std::string& text);  // the same, told
  void event(std::string what, int64_t step, std::string text);

 private:
  struct Count {
    std::string name;
    int64_t number = 0;
    bool is_known = false;  // to every rank, in one order
  };
  void agree_on_names();
  void add_up(observe::Step& step);

  HostGroup& ranks_;
  const Timers& timers_;
  std::unique_ptr<observe::Monitor> monitor_;

  struct Ended {  // passes of the step in hand
    double loss;
    bool has_loss;
    int64_t micro_batches;
    std::vector<int64_t> counts;
  };
  std::optional<Ended> ended_;
  at::Tensor device_loss_;  // [] fp64, on a device
  double loss_ = 0;         // what is here
  bool has_loss_ = false;
  int64_t micro_batches_ = 0;
  std::vector<Count> counts_;  // the known ones first, in the ranks' common order
  size_t known_ = 0;
  std::vector<std::pair<std::string, double>> values_;
  std::vector<double> sums_;  // what travels
  Timers::Times before_;      // at the former boundary
  std::optional<Timers::Clock::time_point> boundary_;
};

// Resident memory of this process; 0 where the system does not say.
int64_t resident_bytes();

}  // namespace gannet
