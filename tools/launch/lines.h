// Output of a rank, cut into whole lines with "[rank] " before each.
//
//   LastLines last;                        // of stdout and stderr together, in order of arrival
//   LinePrefixer lines("[1] ", last);
//   lines.add("loss 2.3\nlo");             // "[1] loss 2.3\n"
//   lines.add("ss 2.1\n");                 // "[1] loss 2.1\n"
//   lines.finish();                        // terminates an unterminated last line
#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace gannet::launch {

// The last 20 lines, without prefix; empty ones are not counted, long ones are cut.
class LastLines {
 public:
  void add(const std::string& line);
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  std::deque<std::string> lines_;
};

// Without a prefix, text passes unchanged and is only remembered line by line.
class LinePrefixer {
 public:
  LinePrefixer(std::string prefix, LastLines& last) : prefix_(std::move(prefix)), last_(last) {}
  // Returns the text that can be written now. A carriage return also ends a line, so that progress
  // bars show; a line of more than 64 KiB is cut.
  std::string add(std::string_view text);
  std::string finish();

 private:
  void end_line(std::string& out);
  std::string prefix_;
  LastLines& last_;
  std::string partial_;
  bool after_return_ = false;
};

}  // namespace gannet::launch
