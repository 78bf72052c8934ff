// Decodes strings as protocol 0 writes them, one per line. Returns nullopt for a line that is not
// a valid string.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gannet::files {

std::optional<std::string> unquoted(std::string_view line);  // Python's repr of a byte string: 'it\'s'
std::optional<std::string> unescaped(
    std::string_view line);  // "raw-unicode-escape": bytes are code points, others are written as \u00e9 and \U0001f600

}  // namespace gannet::files
