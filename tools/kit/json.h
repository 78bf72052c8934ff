// JSON text as a Value: what options say, and what a check's process answers.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::kit {

// Throws Error(kArgument) where it is no JSON.
Value parse_json(const std::string& text);

}  // namespace gannet::kit
