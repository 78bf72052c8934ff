#include "observe/json_line.h"

#include <cmath>

namespace gannet::observe {
namespace {

Value finite(const Value& value) {
  if (value.is_number() && !value.is_int() && !std::isfinite(value.as_number()))
    return std::isnan(value.as_number()) ? "NaN" : value.as_number() > 0 ? "Infinity" : "-Infinity";
  if (value.is_list()) {
    List list;
    for (const Value& element : value.as_list()) list.push_back(finite(element));
    return list;
  }
  if (value.is_dict()) {
    Dict dict;
    for (const auto& [key, member] : value.as_dict().entries()) dict.entries().emplace_back(key, finite(member));
    return dict;
  }
  return value;
}

}  // namespace

std::string json_line(const Value& value) { return finite(value).to_json() + '\n'; }

}  // namespace gannet::observe
