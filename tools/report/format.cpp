#include "report/format.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace gannet::report {
namespace {

template <typename... Args>
std::string printed(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

// Valid UTF-8: invalid bytes become U+FFFD.
std::string repaired(std::string_view text) {
  const std::string json = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(json).get<std::string>();
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

std::string plural(int64_t count, std::string_view word) {
  return with_commas(count) + " " + std::string(word) + (count == 1 ? "" : "s");
}

std::string html_text(std::string_view text) {
  std::string escaped;
  for (const char letter : repaired(text)) {
    const bool is_control = static_cast<unsigned char>(letter) < 0x20 && letter != '\n' && letter != '\t';
    if (is_control || letter == 0x7F)
      escaped += "\xEF\xBF\xBD";
    else if (letter == '&')
      escaped += "&amp;";
    else if (letter == '<')
      escaped += "&lt;";
    else if (letter == '>')
      escaped += "&gt;";
    else if (letter == '"')
      escaped += "&quot;";
    else if (letter == '\'')
      escaped += "&#39;";
    else
      escaped += letter;
  }
  return escaped;
}

std::string script_json(const std::string& json) {
  std::string escaped;
  escaped.reserve(json.size());
  for (const char letter : json)
    if (letter == '<' || letter == '>' || letter == '&')
      escaped += letter == '<' ? "\\u003c" : letter == '>' ? "\\u003e" : "\\u0026";
    else
      escaped += letter;
  return escaped;
}

}  // namespace gannet::report
