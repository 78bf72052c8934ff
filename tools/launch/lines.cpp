#include "launch/lines.h"

#include "base/format.h"

namespace gannet::launch {
namespace {
constexpr size_t kLongestLine = 64 * 1024;
constexpr size_t kRemembered = 20;
constexpr size_t kLongestRemembered = 2000;
}  // namespace

void LastLines::add(const std::string& line) {
  if (line.empty()) return;
  lines_.push_back(line.size() > kLongestRemembered ? formatted("{} ...", line.substr(0, kLongestRemembered)) : line);
  if (lines_.size() > kRemembered) lines_.pop_front();
}

void LinePrefixer::end_line(std::string& out) {
  out += formatted("{}{}\n", prefix_, partial_);
  last_.add(partial_);
  partial_.clear();
}

std::string LinePrefixer::add(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    const bool second_of_pair = letter == '\n' && after_return_;  // "\r\n" ends only one line
    after_return_ = letter == '\r';
    if (second_of_pair) continue;
    if (letter == '\n' || letter == '\r')
      end_line(out);
    else
      partial_ += letter;
    if (partial_.size() >= kLongestLine) end_line(out);
  }
  return prefix_.empty() ? std::string(text) : out;
}

std::string LinePrefixer::finish() {
  std::string out;
  if (!partial_.empty()) end_line(out);
  return prefix_.empty() ? "" : out;
}

}  // namespace gannet::launch
