// Appends to files without ever stopping the run. Data that cannot be written is dropped, which is
// reported once, and writing is retried a minute later. So if a disk is full for a while, only the
// lines of that time are lost.
//
//   Output output({.who = "gannet.metrics"});
//   const size_t file = output.open("run1/metrics.jsonl");   // created with its folders at the first flush; old content stays
//   output.add(file, line);                                  // kept in memory until the flush
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
    std::string who;  // the name at the beginning of the warning
    std::chrono::milliseconds retry{60'000};
    bool is_text = true;  // if a crash truncated the last line, it is ended before anything is appended
  };
  explicit Output(Options options) : options_(std::move(options)) {}
  ~Output();
  Output(const Output&) = delete;

  // `head` is written first if the file is empty.
  size_t open(std::string path, std::string head = "");
  void add(size_t file, std::string_view bytes);
  void flush();

  // The number of failures so far. After a failure, binary output must continue in a new file,
  // because a record may be truncated.
  int64_t failures() const { return failures_; }

 private:
  struct File {
    // pending: data added since the last flush. handle: -1 until the first flush, and after a
    // failure.
    std::string path, head, pending;
    int handle = -1;
    int64_t lines = 0;  // number of lines in `pending`
  };
  void write(File& file);
  void fail(const std::string& path, const std::string& why);
  void close_all();

  Options options_;
  std::vector<File> files_;
  // is_down_ is set from a failed write until a write succeeds. Before retry_at_, lines are dropped
  // and counted in lost_.
  bool is_down_ = false;
  Clock::time_point retry_at_{};
  int64_t failures_ = 0, lost_ = 0;
};

}  // namespace gannet::observe
