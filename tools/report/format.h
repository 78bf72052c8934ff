// Formats numbers and text for the report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gannet::report {

std::string number_text(double value);                     // "2.314", "8,123", "3e-4", "1.2e7", "NaN"
std::string with_commas(int64_t value);                    // "1,234,567"
std::string count_text(double value);                      // "124 M", "1.3 B", "512"
std::string duration_text(double seconds);                 // "312 ms", "4.2 s", "3 min 12 s", "2 h 05 min", "3 d 4 h"
std::string clock_text(double seconds);                    // "0:03:12"
std::string plural(int64_t count, std::string_view word);  // "1 step", "2 steps"

// Escapes text for HTML and its attributes; bytes that are not UTF-8 or are control
// characters become U+FFFD.
std::string html_text(std::string_view text);
// JSON that is safe in a script element: '<', '>' and '&', which occur only in its strings, are
// escaped.
std::string script_json(const std::string& json);

}  // namespace gannet::report
