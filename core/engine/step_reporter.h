// Collects the values for the engine's monitors: losses, counts and phase timings. At a boundary,
// one small all-reduce combines losses and counts over all ranks; rank 0 passes them to its monitor
// with its own timings. Every rank has a StepReporter if the config requests a monitor or an
// optimizer uses the loss; otherwise none has one.
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

// The totals at the time of the last report.
struct ReportedTotals {
  Timers::Times micro_batch, step;  // for wall_clock_breakdown
  uint64_t bytes_sent = 0;          // by the Comm
};

class StepReporter {
 public:
  // `monitor`: rank 0's monitor; null on the other ranks. `is_metered`: false if it serves only an
  // optimizer that uses the loss, so that it does not restart other engines' memory measurements.
  StepReporter(HostGroup& ranks, const Timers& timers, std::unique_ptr<observe::Monitor> monitor, bool is_metered = true)
      : ranks_(ranks), timers_(timers), monitor_(std::move(monitor)), is_metered_(is_metered) {}

  ~StepReporter();  // what was recorded after the last step goes to the monitors
  StepReporter(const StepReporter&) = delete;
  StepReporter& operator=(const StepReporter&) = delete;

  void begin_forward(bool trains);                       // the first training forward starts the clock of the first step
  void add_loss(const at::Tensor& loss, double weight);  // stays on its device; `weight`: 1 if a step's losses are averaged
  void end_micro_batch() { ++micro_batches_; }
  void forget_loss();  // drops the loss so far and its micro-batches, which do not belong to the step
  // The mean loss of the step over its micro-batches and all ranks, before step(); NaN if no rank
  // has one. Every rank calls it.
  double mean_loss();
  // The step's earlier losses were before a load: mean_loss() is NaN until the step has ended.
  void miss_losses() { misses_losses_ = true; }
  void fetch_loss();  // reads the loss from its device; called when the host has already waited
  void count(std::string_view name, int64_t number);
  void record(std::string_view name, double value);

  struct StepBoundary {  // when a step ended; anything later counts for the next step
    Timers::Clock::time_point at;
    Timers::Times times;
  };
  StepBoundary boundary_now() const { return {Timers::Clock::now(), timers_.now()}; }
  // Ends a step. Every rank calls it. The rest of `step` is filled with the collected loss, counts
  // and timings.
  void step(observe::Step step, const StepBoundary& boundary, bool with_breakdown, bool flush);
  void forget_step();                                 // called if the step, or its current pass, is not taken
  void end_pass();                                    // keeps the loss and the counts so far, whatever happens to the next pass
  void forget_passes() { ended_.reset(); }            // called when the current step's passes are over
  void error(int64_t step, const std::string& text);  // like forget_step(), and reports the error
  void event(std::string what, int64_t step, std::string text);

 private:
  struct NamedCount {
    std::string name;
    int64_t number = 0;
    bool is_known = false;  // known to every rank, in the same order
  };
  void agree_on_names();
  void add_up(observe::Step& step);

  HostGroup& ranks_;
  const Timers& timers_;
  std::unique_ptr<observe::Monitor> monitor_;
  const bool is_metered_;

  struct EndedPasses {  // the ended passes of the current step
    double loss;
    bool has_loss;
    int64_t micro_batches;
    std::vector<int64_t> counts;
  };
  std::optional<EndedPasses> ended_;
  at::Tensor device_loss_;  // [] fp64, on a device
  double loss_ = 0;         // the part of the loss that is on the host
  bool has_loss_ = false;
  bool misses_losses_ = false;
  int64_t micro_batches_ = 0;
  std::vector<NamedCount> counts_;  // the known ones first, in the order common to all ranks
  size_t known_ = 0;
  std::vector<std::pair<std::string, double>> values_;
  int64_t last_step_ = 0, last_samples_ = 0;
  std::vector<double> sums_;  // the values to all-reduce
  Timers::Times before_;      // the timers at the previous boundary
  std::optional<Timers::Clock::time_point> boundary_;
};

// Returns the resident memory of this process; 0 if the system does not report it.
int64_t resident_bytes();

}  // namespace gannet
