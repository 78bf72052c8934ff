// Conversions between Values and JSON text.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::common {

/// Throws Error(kArgument), with a message that starts with `what`, if the text is not JSON, or has
/// a duplicate key or a number that is too large. Comments are skipped.
Value parse_json(const std::string& text, const std::string& what);

/// Writes a value as Python's json.dump(indent=2, sort_keys=True) does: keys are sorted and
/// indented by two spaces. Numbers that are not finite become null.
std::string pretty_json(const Value& value);

}  // namespace gannet::common
