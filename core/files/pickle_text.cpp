#include "files/pickle_text.h"

#include <charconv>
#include <cstdint>

namespace gannet::files {
namespace {

std::optional<uint32_t> hex(std::string_view line, size_t begin, size_t digits) {
  uint32_t value = 0;
  if (line.size() < begin + digits) return std::nullopt;
  const auto [end, code] = std::from_chars(line.data() + begin, line.data() + begin + digits, value, 16);
  if (code != std::errc() || end != line.data() + begin + digits) return std::nullopt;
  return value;
}

void append_utf8(std::string& text, uint32_t point) {
  if (point < 0x80) {
    text += static_cast<char>(point);
    return;
  }
  const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  text += static_cast<char>(kLead[more] | point >> 6 * more);
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (point >> 6 * i & 0x3f));
}

}  // namespace

std::optional<std::string> unquoted(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"')) return std::nullopt;
  line = line.substr(1, line.size() - 2);
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      text += line[i];
      continue;
    }
    if (++i == line.size()) return std::nullopt;
    switch (line[i]) {
      case '\\':
      case '\'':
      case '"':
        text += line[i];
        break;
      case 'n':
        text += '\n';
        break;
      case 'r':
        text += '\r';
        break;
      case 't':
        text += '\t';
        break;
      case 'x': {
        const auto byte = hex(line, i + 1, 2);
        if (!byte) return std::nullopt;
        text += static_cast<char>(*byte);
        i += 2;
        break;
      }
      default:
        return std::nullopt;
    }
  }
  return text;
}

std::optional<std::string> unescaped(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const size_t digits = line[i] != '\\' || i + 1 == line.size() ? 0 : line[i + 1] == 'u' ? 4 : line[i + 1] == 'U' ? 8 : 0;
    if (digits == 0) {
      append_utf8(text, static_cast<unsigned char>(line[i]));
      continue;
    }
    const auto point = hex(line, i + 2, digits);
    if (!point || *point > 0x10ffff) return std::nullopt;
    append_utf8(text, *point);
    i += 1 + digits;
  }
  return text;
}

}  // namespace gannet::files
