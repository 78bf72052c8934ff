// Converts between the API's Value and JSON without loss: NaN and infinities, which JSON lacks,
// become {"$number": "NaN"}.
#pragma once

#include <gannet/value.h>

#include <nlohmann/json.hpp>
#include <string_view>

namespace gannet::checkpoint {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value);
Value from_json(const Json& json);  // throws nlohmann's exception on an integer beyond int64

// Throws nlohmann's exception for text that is not JSON, and for lists and dictionaries nested more
// than 256 levels deep.
Json parse_json(std::string_view text);

}  // namespace gannet::checkpoint
