// Converts an object to a document value: numbers, strings, lists, dictionaries.
#pragma once

#include <gannet/value.h>

#include <optional>

#include "files/node.h"

namespace gannet::convert {

// Returns nullopt if the object contains something that a document cannot hold: tensors, objects,
// bytes, strings that are not UTF-8, keys that are neither strings nor integers, nesting deeper
// than 64. `fault` then says what it is and where.
std::optional<Value> inert(const files::Node& node, std::string& fault);

}  // namespace gannet::convert
