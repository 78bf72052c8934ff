// Values as JSON that every reader takes.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::observe {

// On one line, with its end. Numbers that JSON has not are the strings "NaN", "Infinity", "-Infinity"; bytes that are no UTF-8
// (a path, a host's name) become U+FFFD.
std::string json_line(const Value& value);

}  // namespace gannet::observe
