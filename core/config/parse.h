// Parses JSON text into a tree with positions. Checks only the syntax, and knows nothing about the
// keys.
#pragma once

#include <string>

#include "config/document.h"

namespace gannet::config {

// Comments and trailing commas are legal; a duplicate key at any depth is not. Each origin is
// `name` with the key's line and column. Throws Error(kConfig) with a one-sentence message on any
// other syntax error.
Tree parse_text(const std::string& text, const std::string& name);
// Reads and parses a file. A missing or unreadable file, a folder, and an empty, too large or binary
// file each have a one-sentence error of their own.
Tree parse_file(const std::string& path);

// Parses one JSON value without comments, such as a default in the key table.
Value parse_value(std::string_view json);

}  // namespace gannet::config
