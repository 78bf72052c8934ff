// Reads JSON of unknown origin, of bounded depth and size.
#pragma once

#include <gannet/value.h>

#include <cstddef>
#include <string>

namespace gannet::common {

struct JsonLimits {
  size_t bytes = size_t{256} << 20;
  size_t depth = 64;      ///< of objects and lists inside of one another
  size_t members = 1024;  ///< of one object; lists are bounded only by `bytes`
};

/// Parses strict JSON: no comments, no duplicate keys. Integers stay integers: `1` is an int64_t, `1.0` a
/// double. Throws Error(kCorrupt), with a message that starts with `what` and with line and column, for
/// text that is not JSON, is cut off, has an integer outside of 64 bits, or exceeds a limit. It never
/// recurses deeper than the limit, in the parser or in the destructor of the result.
Value parse_bounded_json(const std::string& text, const std::string& what, const JsonLimits& limits = {});

}  // namespace gannet::common
