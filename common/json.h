// Values and JSON text.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet::common {

/// Error(kArgument), headed by `what`, where the text is no JSON or names a key twice. Comments are skipped.
Value parse_json(const std::string& text, const std::string& what);

/// Keys sorted and two spaces, as Python's json.dump(indent=2, sort_keys=True) lays it out. Numbers that are not finite are null.
std::string pretty_json(const Value& value);

}  // namespace gannet::common
