// Writes values as JSON that every reader accepts.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::observe {

// On one line, including the newline. Numbers that JSON does not have are the strings "NaN",
// "Infinity", "-Infinity"; bytes that are not UTF-8 (a path, a host name) become U+FFFD.
std::string json_line(const Value& value);

}  // namespace gannet::observe
