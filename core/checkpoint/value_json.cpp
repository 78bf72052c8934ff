#include "checkpoint/value_json.h"

#include <cmath>
#include <limits>

namespace gannet::checkpoint {
namespace {

constexpr int kMaxDepth = 256;  // nesting limit, as in parse_json(), because the conversion recurses
constexpr const char* kNumber = "$number";

}  // namespace

Json to_json(const Value& value) {
  if (value.is_null()) return nullptr;
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_string()) return value.as_string();
  if (value.is_number()) {
    const double number = value.as_number();
    if (std::isfinite(number)) return number;
    return {{kNumber, std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity"}};
  }
  if (value.is_list()) {
    Json list = Json::array();
    for (const Value& element : value.as_list()) list.push_back(to_json(element));
    return list;
  }
  Json dictionary = Json::object();
  for (const auto& [key, member] : value.as_dict().entries()) dictionary[key] = to_json(member);
  return dictionary;
}

Value from_json(const Json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    throw Json::out_of_range::create(401, "an integer larger than 2^63 - 1", &json);
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    list.reserve(json.size());
    for (const Json& element : json) list.push_back(from_json(element));
    return list;
  }
  if (json.size() == 1 && json.begin().key() == kNumber && json.begin()->is_string()) {
    const std::string& name = json.begin()->get_ref<const std::string&>();
    const double infinity = std::numeric_limits<double>::infinity();
    return name == "NaN" ? std::numeric_limits<double>::quiet_NaN() : name == "Infinity" ? infinity : -infinity;
  }
  Dict dictionary;
  for (const auto& [key, member] : json.items()) dictionary.entries().emplace_back(key, from_json(member));
  return dictionary;
}

Json parse_json(std::string_view text) {
  return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) throw Json::out_of_range::create(406, "nested deeper than 256 levels", nullptr);
    return true;
  });
}

}  // namespace gannet::checkpoint
