// Decodes strings as protocol 0 writes them, one per line. The result is empty if the line is not
// such a string.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gannet::files {

std::optional<std::string> unquoted(std::string_view line);  // Python's repr of a byte string: 'it\'s'
std::optional<std::string> unescaped(
    std::string_view line);  // "raw-unicode-escape": bytes are code points, others are written as \u00e9 and \U0001f600

}  // namespace gannet::files
