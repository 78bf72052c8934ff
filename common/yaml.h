// Parses YAML into a Value, from libyaml's events. Plain scalars become numbers and booleans as in
// YAML 1.2's core schema, except that 0x1F, 0o17, .inf and .nan stay text.
#pragma once

#include <gannet/value.h>

#include <cstddef>
#include <map>
#include <string>

namespace gannet::common {

/// The line number of each key, by the key's path: {"optimizer.lr", 3}.
using YamlLines = std::map<std::string, size_t>;

/// Throws an Error(kArgument) that names `what` and the line. Empty text gives an empty dictionary.
Value parse_yaml(const std::string& text, const std::string& what, YamlLines* lines = nullptr);

}  // namespace gannet::common
