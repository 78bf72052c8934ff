// Appends to files without ever stopping the run. Data that cannot be written is reported once and
// dropped, and writing is retried a minute later: a disk that was full for a while costs the lines
// of that time.
//
//   Output output({.who = "gannet.metrics"});
//   const size_t file = output.open("run1/metrics.jsonl");   // created with folders at the first flush; existing content stays
//   output.add(file, line);                                  // in memory
//   output.flush();
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::observe {

class Output {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::string who;  // begins the warning
    std::chrono::milliseconds retry{60'000};
    bool is_text = true;  // a last line that a crash truncated is ended before anything is appended
  };
  explicit Output(Options options) : options_(std::move(options)) {}
  ~Output();
  Output(const Output&) = delete;

  // `head` is written first if the file is empty.
  size_t open(std::string path, std::string head = "");
  void add(size_t file, std::string_view bytes);
  void flush();

  // Binary output must continue in another file after a failure, because a record may be truncated.
  int64_t failures() const { return failures_; }

 private:
  struct File {
    // pending: data added since the last flush. handle: -1 until the first flush, and after a
    // failure.
    std::string path, head, pending;
    int handle = -1;
    int64_t lines = 0;  // pending
  };
  void write(File& file);
  void fail(const std::string& path, const std::string& why);
  void close_all();

  Options options_;
  std::vector<File> files_;
  // Set from a failed write until one succeeds. Until retry_at_, lines are dropped and counted in
  // lost_.
  bool is_down_ = false;
  Clock::time_point retry_at_{};
  int64_t failures_ = 0, lost_ = 0;
};

}  // namespace gannet::observe
