// An object as a value of a document: numbers, texts, lists, dictionaries.
#pragma once

#include <gannet/value.h>

#include <optional>

#include "files/node.h"

namespace gannet::convert {

// Nothing where it holds what a document cannot: tensors, objects, bytes, texts that are not UTF-8, keys that are neither texts
// nor integers, nesting deeper than 64. `fault` is then what and where.
std::optional<Value> inert(const Node& node, std::string& fault);

}  // namespace gannet::convert
