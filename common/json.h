// Values and JSON text.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::common {

/// Throws Error(kArgument), headed by `what`, if the text is not JSON or has a key twice. Comments
/// are skipped.
Value parse_json(const std::string& text, const std::string& what);

/// Keys are sorted, and indented by two spaces, as by Python's json.dump(indent=2, sort_keys=True).
/// Numbers that are not finite are null.
std::string pretty_json(const Value& value);

}  // namespace gannet::common
