#include "report/text_parts.h"

#include <algorithm>

namespace gannet::report {

std::string sparkline(const Series& series) {
  const char* const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = 0, high = 0;
  bool is_first = true;
  for (const Point& point : series.points) {
    if (!point.is_known) continue;
    low = is_first ? point.mean : std::min(low, point.mean);
    high = is_first ? point.mean : std::max(high, point.mean);
    is_first = false;
  }
  std::string line;
  for (const Point& point : series.points) {
    if (!point.is_known)
      line += point.bad > 0 ? "×" : " ";
    else
      line += blocks[high > low ? static_cast<size_t>((point.mean - low) / (high - low) * 7.999) : 0];
  }
  return line;
}

size_t columns_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char letter) { return (static_cast<unsigned char>(letter) & 0xC0) != 0x80; }));
}

std::string padded(std::string text, size_t width) {
  const size_t columns = columns_of(text);
  return columns < width ? text + std::string(width - columns, ' ') : text;
}

std::string plain(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F) letter = '?';
  return text;
}

}  // namespace gannet::report
