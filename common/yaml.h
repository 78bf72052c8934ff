// YAML into a Value, by libyaml's events. Plain scalars become numbers and booleans as YAML 1.2's core schema has them.
#pragma once

#include <gannet/value.h>

#include <cstddef>
#include <map>
#include <string>

namespace gannet::common {

/// The line of each key, by its path: {"optimizer.lr", 3}.
using YamlLines = std::map<std::string, size_t>;

/// Error(kArgument) with `what` and the line. An empty text is an empty dictionary.
Value parse_yaml(const std::string& text, const std::string& what, YamlLines* lines = nullptr);

}  // namespace gannet::common
