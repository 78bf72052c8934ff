// Parses JSON into a Value, for options and for the results of a check's process.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::kit {

// Throws Error(kArgument) if it is not JSON.
Value parse_json(const std::string& text);

}  // namespace gannet::kit
