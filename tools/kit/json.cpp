#include "kit/json.h"

#include <gannet/error.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/text.h"

namespace gannet::kit {
namespace {

Value to_value(const nlohmann::json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
    return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& element : json) list.push_back(to_value(element));
    return list;
  }
  Dict dict;
  for (const auto& [key, member] : json.items()) dict[key] = to_value(member);
  return dict;
}

}  // namespace

Value parse_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw Error(ErrorCode::kArgument, formatted("this is not JSON: {}", printable(text)));
  return to_value(json);
}

}  // namespace gannet::kit
