// Formats numbers for people: "12.40 G", "124.44 M", "3.20 ms", "1.50 GiB".
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace gannet::profiler {

inline std::string with_unit(double number, const char* format, const char* prefix, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof(text), format, number);
  return std::string(text) + (*prefix || *unit ? " " : "") + prefix + unit;
}

// Formats a number with a decimal prefix. `giga` is the prefix for 1e9: "B" for parameter counts,
// as is customary.
inline std::string decimal(double number, const char* unit = "", const char* giga = "G") {
  static constexpr struct {
    double size;
    const char* prefix;
  } kPrefixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [size, prefix] : kPrefixes)
    if (std::abs(number) >= size) return with_unit(number / size, "%.2f", *prefix == 'G' ? giga : prefix, unit);
  return with_unit(number, "%.4g", "", unit);
}

inline std::string duration(double seconds) {
  if (seconds >= 1) return with_unit(seconds, "%.2f", "", "s");
  return seconds >= 1e-3 ? with_unit(seconds * 1e3, "%.2f", "m", "s") : with_unit(seconds * 1e6, "%.1f", "u", "s");
}

inline std::string binary(int64_t bytes) {
  static constexpr struct {
    int64_t size;
    const char* prefix;
  } kPrefixes[] = {{int64_t{1} << 30, "Gi"}, {int64_t{1} << 20, "Mi"}, {int64_t{1} << 10, "Ki"}};
  for (const auto& [size, prefix] : kPrefixes)
    if (bytes >= size) return with_unit(static_cast<double>(bytes) / static_cast<double>(size), "%.2f", prefix, "B");
  return bytes == 0 ? "-" : with_unit(static_cast<double>(bytes), "%.0f", "", "B");
}

inline std::string percent(double part, double whole) {
  return with_unit(whole == 0 ? 0 : 100 * part / whole, "%.1f", "", "") + "%";
}

}  // namespace gannet::profiler
