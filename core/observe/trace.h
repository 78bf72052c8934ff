// Writes the phases of some steps as a Chrome trace. Open it in ui.perfetto.dev or
// chrome://tracing.
//
//   Trace trace({.path = "trace.json", .first_step = 10, .last_step = 12, .rank = 0});
//   trace.at(10, 0);                            // the step and the micro-batch that begin now
//   trace.span("forward", began, ended);        // a phase of the calling thread
//   trace.flight("gather", "h.0.weight", began, ended, bytes);   // a transfer, on no thread: flights may overlap
//
// The file is a JSON array with one event per line. It is written after each step, and stays
// readable if a run died and left the array open. Timestamps are from the machine's steady clock,
// so that the files of all ranks on one machine match.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "observe/output.h"

namespace gannet::observe {

class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    std::string path;  // "{rank}" is replaced by the rank; without it, ranks above 0 add theirs to the name: trace.rank1.json
    int64_t first_step = 10, last_step = 12;
    uint32_t rank = 0;
  };
  explicit Trace(Options options);
  ~Trace();
  Trace(const Trace&) = delete;

  void at(int64_t step, int64_t micro_batch);
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void span(const char* name, Time began, Time ended);
  void flight(const char* kind, std::string_view name, Time began, Time ended, int64_t bytes);

 private:
  void name_thread(int64_t thread);
  void add(std::string event);
  void end();

  Options options_;
  Output output_;
  size_t file_ = 0;
  // Written under mutex_, and read without it when a phase ends.
  std::atomic<bool> is_on_{false};
  std::mutex mutex_;  // needed because autograd's threads report as well
  int64_t step_ = 0, micro_batch_ = 0;
  // The id of the last flight. The id connects the two async events of a flight in the trace
  // format.
  int64_t flights_ = 0;
  bool is_begun_ = false, is_ended_ = false;
};

// The path of the trace file of a rank.
std::string trace_path(const std::string& path, uint32_t rank);

}  // namespace gannet::observe
