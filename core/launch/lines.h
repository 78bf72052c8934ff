// Output of a rank, cut into whole lines with "[rank] " before each.
//
//   LinePrefixer lines("[1] ");
//   lines.add("loss 2.3\nlo");     // "[1] loss 2.3\n"
//   lines.add("ss 2.1\n");         // "[1] loss 2.1\n"
//   lines.finish();                // a last line without an end gets one
#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace gannet::launch {

class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  // What can be written now. A carriage return ends a line too, so that progress bars show; a line of more than 64 KiB is cut.
  std::string add(std::string_view text);
  std::string finish();
  const std::deque<std::string>& last_lines() const { return last_; }  // the last few, without prefix

 private:
  void end_line(std::string& out);
  std::string prefix_;
  std::string partial_;
  bool after_return_ = false;
  std::deque<std::string> last_;
};

}  // namespace gannet::launch
