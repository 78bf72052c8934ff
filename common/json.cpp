#include "common/json.h"

#include <gannet/error.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace gannet::common {
namespace {

using Json = nlohmann::ordered_json;

Value from_json(const Json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return json.get<std::string>();
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& part : json) list.push_back(from_json(part));
      return list;
    }
    case nlohmann::json::value_t::object: {
      Dict dict;
      for (const auto& [key, part] : json.items()) dict[key] = from_json(part);
      return dict;
    }
    default:
      return {};
  }
}

}  // namespace

Value parse_json(const std::string& text, const std::string& what) {
  std::vector<std::set<std::string>> open;  // the keys of each object that is not closed yet
  std::string twice;
  const auto note_keys = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key)
      if (const auto key = parsed.get<std::string>(); !open.back().insert(key).second && twice.empty()) twice = key;
    return true;
  };
  Value value;
  try {
    value = from_json(Json::parse(text, note_keys, true, /*ignore_comments=*/true));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kArgument, what + ": " + error.what(), "give JSON");
  }
  if (!twice.empty()) throw Error(ErrorCode::kArgument, what + ": '" + twice + "' is there twice", "keep one of the two");
  return value;
}

std::string pretty_json(const Value& value) { return nlohmann::json::parse(value.to_json()).dump(2) + "\n"; }

}  // namespace gannet::common
