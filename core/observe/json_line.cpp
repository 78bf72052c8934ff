#include "observe/json_line.h"

#include <cmath>

namespace gannet::observe {
namespace {

Value finite(const Value& value) {
  if (value.is_number() && !value.is_int() && !std::isfinite(value.as_number()))
    return std::isnan(value.as_number()) ? "NaN" : value.as_number() > 0 ? "Infinity" : "-Infinity";
  if (value.is_list()) {
    List list;
    for (const Value& element : value.as_list()) list.push_back(finite(element));
    return list;
  }
  if (value.is_dict()) {
    Dict dict;
    for (const auto& [key, member] : value.as_dict().entries()) dict.entries().emplace_back(key, finite(member));
    return dict;
  }
  return value;
}

// Bytes of the character that begins at `at`; 0 where none does (RFC 3629: no overlong forms, no surrogates).
size_t character_at(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_legal = !(first == 0xE0 && byte(1) < 0xA0) && !(first == 0xED && byte(1) > 0x9F);
    return is_legal && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool is_legal = !(first == 0xF0 && byte(1) < 0x90) && !(first == 0xF4 && byte(1) > 0x8F);
    return is_legal && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string json_line(const Value& value) {
  const std::string text = finite(value).to_json();
  std::string line;
  line.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_at(text, at);
    if (size > 0)
      line.append(text, at, size);
    else
      line += "\xEF\xBF\xBD";
    at += size > 0 ? size : 1;
  }
  line += '\n';
  return line;
}

}  // namespace gannet::observe
