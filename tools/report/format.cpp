#include "report/format.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace gannet::report {
namespace {

template <typename... Args>
std::string printed(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

// Length of the well-formed UTF-8 character at the front, 0 if there is none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first < 0xF0) {
    if (!follows(1) || !follows(2) || (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0)) return 0;
    return 3;
  }
  if (first >= 0xF0 && first < 0xF5) {
    if (!follows(1) || !follows(2) || !follows(3) || (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90))
      return 0;
    return 4;
  }
  return 0;
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The text cut into characters, each sound; `out` gets them one by one.
template <typename Out>
void each_character(std::string_view text, Out out) {
  while (!text.empty()) {
    const size_t length = character_length(text);
    const bool is_control = length == 1 && static_cast<unsigned char>(text[0]) < 0x20 && text[0] != '\n' && text[0] != '\t';
    out(length == 0 || is_control || text[0] == 0x7F ? kReplacement : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(), first = value < 0 ? 1 : 0; at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  const double size = std::fabs(value);
  if (size == 0) return "0";
  if (size >= 999.95 && size < 1e7) return with_commas(std::llround(value));
  if (size >= 1e-3 && size < 999.95) return printed("%.4g", value);
  int exponent = static_cast<int>(std::floor(std::log10(size)));
  std::string mantissa = printed("%.3g", value / std::pow(10.0, exponent));
  if (mantissa == "10" || mantissa == "-10") mantissa.erase(mantissa.size() - 1), ++exponent;
  return mantissa + "e" + std::to_string(exponent);
}

std::string count_text(double value) {
  const char* const units[] = {"", " k", " M", " B", " T"};
  size_t unit = 0;
  for (; std::fabs(value) >= 999.5 && unit < 4; ++unit) value /= 1000;
  return printed(unit == 0 ? "%.4g" : "%.3g", value) + units[unit];
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 0.0995) return printed("%.3g ms", seconds * 1e3);
  if (seconds < 0.9995) return printed("%.0f ms", seconds * 1e3);
  if (seconds < 59.95) return printed("%.3g s", seconds);
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 3600) return printed("%lld min %02lld s", whole / 60, whole % 60);
  if (whole < 86400) return printed("%lld h %02lld min", whole / 3600, whole % 3600 / 60);
  return printed("%lld d %lld h", whole / 86400, whole % 86400 / 3600);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(seconds);
  return printed("%lld:%02lld:%02lld", whole / 3600, whole % 3600 / 60, whole % 60);
}

std::string scale_text(double value) {
  int exponent = 0;
  if (!(value >= 1) || std::frexp(value, &exponent) != 0.5) return number_text(value);
  const char* const digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = "2";
  for (const char digit : std::to_string(exponent - 1)) text += digits[digit - '0'];
  return text;
}

std::string plural(int64_t count, std::string_view word) {
  return with_commas(count) + " " + std::string(word) + (count == 1 ? "" : "s");
}

std::string html_text(std::string_view text) {
  std::string escaped;
  each_character(text, [&](std::string_view character) {
    switch (character[0]) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += character;
    }
  });
  return escaped;
}

std::string script_string(std::string_view text) {
  std::string escaped = "\"";
  each_character(text, [&](std::string_view character) {
    switch (character[0]) {
      case '"':
        escaped += "\\\"";
        break;
      case '\\':
        escaped += "\\\\";
        break;
      case '\n':
        escaped += "\\n";
        break;
      case '\t':
        escaped += "\\t";
        break;
      case '<':
        escaped += "\\u003c";
        break;
      case '>':
        escaped += "\\u003e";
        break;
      case '&':
        escaped += "\\u0026";
        break;
      default:
        escaped += character;
    }
  });
  return escaped + '"';
}

}  // namespace gannet::report
