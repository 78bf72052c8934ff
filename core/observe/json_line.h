// Writes values as JSON that every JSON reader accepts.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::observe {

// Returns the value on one line, including the newline. Numbers that JSON does not have become the
// strings "NaN", "Infinity" and "-Infinity"; bytes that are not UTF-8 (in a path, a host name)
// become U+FFFD.
std::string json_line(const Value& value);

}  // namespace gannet::observe
