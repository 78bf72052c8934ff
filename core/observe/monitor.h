// Reports on a run while it trains: the metrics file, CSV files, TensorBoard. The engine of rank 0
// passes plain values. This code accesses no device and no other rank, and does not throw if a file
// cannot be written.
//
//   Monitor monitor(settings, run);
//   monitor.step({.step = 1, .loss = 5.5, ...});
//   monitor.event("checkpoint", 1, "saved run1/global_step1");
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/resolve.h"

namespace gannet::observe {

// Describes the run at its start. It becomes the first line of the metrics file.
struct Run {
  struct Plugin {
    std::string kind, name, version, file;
  };
  struct Group {
    std::string name;
    int64_t parameters = 0;  // number of parameter elements in this rank's shard of the model
    std::vector<std::pair<std::string, double>> hyper;
  };
  int64_t world_size = 1, global_step = 0, parameters = 0;
  int64_t train_batch_size = 0, micro_batch_size = 0, accumulation_steps = 1, zero_stage = 0;
  std::string dtype;
  std::vector<config::EffectiveValue> config;
  std::vector<Plugin> plugins;
  std::vector<Group> groups;
};

// One step. The values are those of rank 0, unless noted otherwise.
struct Step {
  int64_t step = 0, samples = 0;  // completed so far, including this step
  std::optional<double> loss;     // mean over micro-batches and ranks
  std::vector<double> lr;         // the learning rate of each group in this step
  std::vector<double> next_lr;    // the learning rate of each group, for the next step
  std::optional<double> grad_norm;
  double loss_scale = 1, next_loss_scale = 1;
  bool has_loss_scale = false;  // whether the loss is scaled (fp16)
  bool applied = true;
  std::string reason;                                   // why the step was skipped
  double seconds = 0;                                   // time since the previous accumulation boundary
  std::vector<std::pair<std::string, double>> phases;   // the seconds spent in each
  std::vector<std::pair<std::string, double>> elapsed;  // ms, named like DeepSpeed's tags; only with wall_clock_breakdown
  std::vector<std::pair<std::string, int64_t>> counts;  // the program's counts, summed over all ranks
  std::vector<std::pair<std::string, double>> values;   // the program's own values
  int64_t memory_bytes = 0;                             // resident memory of the process
  std::vector<std::pair<std::string, int64_t>> memory;  // bytes of memory by purpose; empty: unknown
};

// Values that the program recorded after the last step, such as the loss of a last evaluation.
struct LateValues {
  int64_t step = 0, samples = 0;  // of the last step
  std::vector<std::pair<std::string, double>> values;
};

struct Event {
  int64_t step = 0;
  std::string what, text;  // "checkpoint", "saved run1/global_step40, 1.2 GB in 0.8 s"
};

class Writer {
 public:
  virtual ~Writer() = default;
  virtual void run(const Run&) {}
  virtual void step(const Step& step, double time) = 0;  // time: seconds since the run began
  virtual void values(const LateValues& late, double time) = 0;
  virtual void event(const Event&, double) {}
  virtual void flush() = 0;
};

class Monitor {
 public:
  Monitor(const config::Settings& settings, const Run& run);
  ~Monitor();

  void step(const Step& step);
  void values(const LateValues& late);
  void event(const Event& event);
  void flush();
  // Flushes if the last flush was at least a second ago. Cheap enough to be part of every engine
  // call.
  void flush_if_due() {
    if (has_news_ && Clock::now() - flushed_ >= std::chrono::seconds(1)) flush();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double time() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  std::vector<std::unique_ptr<Writer>> writers_;
  Clock::time_point began_ = Clock::now(), flushed_{};
  bool has_news_ = false;
};

// Whether the config enables any of the monitors.
bool is_wanted(const config::Settings& settings);

// The scalars of a step that the monitors plot, such as ("Train/Samples/lr", 0.001). The tags are
// DeepSpeed's and others of the same form; a name that contains a '/' is the tag itself.
std::vector<std::pair<std::string, double>> scalars_of(const Step& step);
std::vector<std::pair<std::string, double>> scalars_of(const LateValues& late);

// A human-readable size: "1.2 GB".
std::string bytes_text(uint64_t bytes);

}  // namespace gannet::observe
