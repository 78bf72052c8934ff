// The progress reports of a run: a line that is rewritten on a terminal, occasional lines
// elsewhere, and JSON lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace gpt2 {

/// The report of one optimizer step. `lr` is the learning rate used by the step, and `loss` the
/// mean over its micro-batches and ranks.
struct StepReport {
  int64_t step = 0;  // counted from 1
  double loss = 0, lr = 0;
  std::optional<double> grad_norm = std::nullopt;
  double loss_scale = 1;
  bool skipped = false;
  double seconds = 0;
};

/// Writes lines such as
/// {"step":1,"loss":5.5,"lr":0.001,"grad_norm":2.5,"loss_scale":1,"skipped":false,"seconds":0.1}
class MetricsFile {
 public:
  /// Writes nothing if `path` is "". `append` adds to the file, for a resumed run. Throws
  /// gannet::Error(kIo) if the file cannot be written.
  explicit MetricsFile(const std::string& path, bool append = false);
  void write(const StepReport& report);

 private:
  std::string path_;
  std::ofstream out_;
};

/// Shows the loss, learning rate, tokens/s and time left on stderr; silent unless `shown`.
class Progress {
 public:
  /// Reports steps first_step + 1 to `steps`.
  Progress(int64_t first_step, int64_t steps, int64_t tokens_per_step, bool shown);
  void update(const StepReport& report);
  /// Ends the line on the terminal.
  void finish();

 private:
  int64_t first_step_, steps_, tokens_per_step_, every_;
  bool shown_, terminal_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace gpt2
