// A metrics file read back: its runs, the steps that remain valid, its events, and its faults.
//
//   const Records records = read_records("run1/metrics.jsonl");
//   records.steps.back().loss;   // the loss of the last step
//   records.notes;               // "line 57 was left out: ..."
//
// When a run is resumed, its step numbers go back. A step record replaces every earlier record of
// the same or a later step: the steps that a run made after the checkpoint from which the next run
// resumed are not part of the training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gannet::report {

struct ConfigRow {
  std::string key, value, origin;
};

struct PluginRow {
  std::string kind, name, version, file;
};

struct RunRecord {
  std::string started_at, gannet, dtype;
  int64_t world_size = 0, parameters = 0, zero_stage = 0;
  int64_t train_batch_size = 0, micro_batch_size = 0, accumulation_steps = 0;
  std::vector<ConfigRow> config;
  std::vector<PluginRow> plugins;
  std::vector<std::pair<std::string, std::string>> machine;

  // Taken from the lines that follow the run's record:
  int64_t first_step = 0, last_step = 0;
  int64_t steps = 0;        // step records
  int64_t left_behind = 0;  // of these, the ones that a later record replaced
  double seconds = 0;       // from its start to its last line
};

using IndexedValues = std::vector<std::pair<size_t, double>>;  // index into a list of names, value

struct StepRecord {
  int64_t step = 0, samples = 0;  // samples: in this step
  size_t run = 0;
  double time = 0;                                                           // seconds since the run's start
  std::optional<double> loss, grad_norm, loss_scale, seconds, memory_bytes;  // may be NaN or infinite
  std::vector<double> lr;                                                    // by parameter group
  bool applied = true;
  std::string reason;  // why it was skipped
  IndexedValues phases, counts, values, memory;
};

struct EventRecord {
  int64_t step = 0;
  size_t run = 0;
  double time = 0;
  std::string what, text;
};

struct Records {
  std::string path;
  std::vector<RunRecord> runs;    // at least one
  std::vector<StepRecord> steps;  // ascending, each once
  std::vector<EventRecord> events;
  std::vector<std::string> phase_names, count_names, value_names, memory_names;  // in order of first appearance
  std::vector<std::string> notes;  // one sentence for each part of the file that could not be used
};

// `path` is a file, or a folder with one file *.jsonl in it. Throws Error(kNotFound) if there is none,
// kArgument if a folder has several, kIo if it cannot be read, kCorrupt if no line is a record, kUnsupported
// if a newer Gannet wrote it. Single lines that are not a record are left out, and a note names them.
Records read_records(const std::string& path);

}  // namespace gannet::report
