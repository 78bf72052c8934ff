// Writes output_dir/trial.jsonl: a line for each report and validation, without timings, so that a
// stopped and resumed run leaves the same file as an uninterrupted one.
#pragma once

#include <gannet/trial_metrics.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gannet::trials {

class TrialRecords {
 public:
  // Keeps the lines up to `batches`, which is where a resumed run continues. `is_writer` is true on
  // one rank only.
  TrialRecords(const std::string& folder, int64_t batches, bool is_writer);
  void write(const char* kind, int64_t batches, std::optional<double> epochs, const TrialMetrics& metrics);

 private:
  std::string path_;
  bool is_writer_;
};

// Writes the file atomically.
void write_file(const std::string& path, const std::string& text);
std::string read_file(const std::string& path);  // "" if there is no such file
// Formats metrics as in "loss 0.25, accuracy 0.9".
std::string shown(const TrialMetrics& metrics);

}  // namespace gannet::trials
