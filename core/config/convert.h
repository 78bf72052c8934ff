// One value to the type and range of its key, as pydantic's lax mode does: "2" is 2, 5e8 is an integer, "yes" is true.
#pragma once

#include <string>

#include "config/keys.h"

namespace gannet::config {

// Throws Error(kConfig) that begins with `where` ("ds_config.json:3:5: /fp16/enabled") and says what is wanted and what was
// found. Sections are not converted here. An "auto" and a null are the caller's business.
Value convert(const Key& key, const Value& value, const std::string& where);

// "an integer >= 1", "one of mean, sum"
std::string wanted(const Key& key);

}  // namespace gannet::config
