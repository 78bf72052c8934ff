// Values and JSON text.
#pragma once

#include <gannet/value.h>

#include <string>

namespace gannet {

std::string pretty_json(const Value& value);

}  // namespace gannet
