#include "common/json.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstddef>
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

// A number that is not finite is written as null, since JSON cannot represent it.
nlohmann::json as_json(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_number()) return value.as_number();
  if (value.is_string()) return value.as_string();
  if (value.is_list()) {
    nlohmann::json list = nlohmann::json::array();
    for (const Value& part : value.as_list()) list.push_back(as_json(part));
    return list;
  }
  if (!value.is_dict()) return nullptr;
  nlohmann::json dict = nlohmann::json::object();
  for (const auto& [key, part] : value.as_dict().entries()) dict[key] = as_json(part);
  return dict;
}

// Rejects text that is not JSON. The parser's own message is not used: it quotes the bytes where
// it stopped, which may be anything.
[[noreturn]] void refuse_text(const std::string& text, size_t byte, const std::string& what) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorCode::kArgument, what + ": the text is empty", "give JSON");
  const size_t at = std::min(byte > 0 ? byte - 1 : 0, text.size());
  const size_t line_start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
  const std::string place = what + ":" + std::to_string(line) + ":" + std::to_string(at - line_start + 1);
  if (at == text.size()) throw Error(ErrorCode::kArgument, place + ": the JSON text ends here and is not complete", "close it");
  throw Error(ErrorCode::kArgument, place + ": the text is not JSON from here",
              "a value is a number, true, false, null, \"text\", [ ... ] or { ... }, and commas separate members");
}

}  // namespace

Value parse_json(const std::string& text, const std::string& what) {
  std::vector<std::set<std::string>> open;  // the keys of each object that is still open
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
  } catch (const nlohmann::json::parse_error& error) {
    refuse_text(text, error.byte, what);
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kArgument, what + ": a number is too large", "the largest is about 1.8e308");
  }
  if (!twice.empty()) throw Error(ErrorCode::kArgument, what + ": '" + twice + "' is there twice", "keep one of the two");
  return value;
}

std::string pretty_json(const Value& value) {
  return as_json(value).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace gannet::common
