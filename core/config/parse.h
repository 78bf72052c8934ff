// JSON text to a tree with positions: the syntax only, no knowledge of keys.
#pragma once

#include <string>

#include "config/document.h"

namespace gannet::config {

// Comments and trailing commas are legal; a duplicate key at any depth is not. Origins are `name` with line and column of the
// key. Throws Error(kConfig) with one sentence on everything else.
Tree parse_text(const std::string& text, const std::string& name);
// Reads the file; a missing or unreadable one, a folder, an empty or binary file are one sentence each.
Tree parse_file(const std::string& path);

// One JSON value without comments: the defaults of the key table.
Value parse_value(std::string_view json);

}  // namespace gannet::config
