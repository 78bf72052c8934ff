// Strings as protocol 0 writes them, on a line of their own. Empty where the line is none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gannet::files {

std::optional<std::string> unquoted(std::string_view line);  // Python's repr of a byte string: 'it\'s'
std::optional<std::string> unescaped(
    std::string_view line);  // "raw-unicode-escape": bytes are code points, \u00e9 and \U0001f600 the others

}  // namespace gannet::files
