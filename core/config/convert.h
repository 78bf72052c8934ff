// Converts a value to the type and range of its key, like pydantic's lax mode: "2" is 2, 5e8 is an
// integer, "yes" is true.
#pragma once

#include <string>

#include "config/keys.h"

namespace gannet::config {

// Throws Error(kConfig) with the prefix `where` ("ds_config.json:3:5: fp16.enabled") and the
// expected and found values. Only checks that a section is an object. The caller handles "auto" and null.
Value convert(const Key& key, const Value& value, const std::string& where);

// Describes the values that a key accepts: "an integer >= 1", "one of mean, sum".
std::string wanted(const Key& key);

}  // namespace gannet::config
