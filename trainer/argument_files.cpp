// Arguments in a JSON or YAML file, read into a Value. YAML by libyaml's events; its plain scalars become numbers and booleans as
// YAML 1.2's core schema has them.
#include <gannet/error.h>
#include <yaml.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "argument_table.h"
#include "json.h"

namespace gannet {

static Value from_json(const nlohmann::ordered_json& json) {
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

// A number that is not finite is written as null: JSON has no other word for it.
static nlohmann::json as_json(const Value& value) {
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

std::string pretty_json(const Value& value) {
  // Keys sorted and two spaces, as Hugging Face writes trainer_state.json.
  return as_json(value).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

namespace arguments {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw Error(ErrorCode::kNotFound, "cannot open the file of arguments " + path, "name a .json or .yaml file");
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

class Yaml {
 public:
  Yaml(const std::string& text, std::string what) : what_(std::move(what)) {
    yaml_parser_initialize(&parser_);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Yaml() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Yaml(const Yaml&) = delete;

  Value document() {
    do advance();
    while (event_.type == YAML_STREAM_START_EVENT || event_.type == YAML_DOCUMENT_START_EVENT);
    return event_.type == YAML_STREAM_END_EVENT ? Value(Dict()) : node();
  }

 private:
  [[noreturn]] void fail(const std::string& problem, size_t line) const {
    throw Error(ErrorCode::kArgument, what_ + ":" + std::to_string(line + 1) + ": " + problem);
  }
  void advance() {
    yaml_event_delete(&event_);
    if (!yaml_parser_parse(&parser_, &event_)) fail(parser_.problem ? parser_.problem : "no YAML", parser_.problem_mark.line);
  }
  Value scalar() const {
    const std::string text(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
    if (event_.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return text;
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
    if (text == "true" || text == "True" || text == "TRUE") return true;
    if (text == "false" || text == "False" || text == "FALSE") return false;
    if (const auto whole = number_of<int64_t>(text)) return *whole;
    if (text.find_first_of("0123456789") != std::string::npos)
      if (const auto number = number_of<double>(text)) return *number;
    return text;
  }
  Value node() {  // of the current event, up to its own end
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return scalar();
      case YAML_SEQUENCE_START_EVENT: {
        List list;
        for (advance(); event_.type != YAML_SEQUENCE_END_EVENT; advance()) list.push_back(node());
        return list;
      }
      case YAML_MAPPING_START_EVENT: {
        Dict dict;
        for (advance(); event_.type != YAML_MAPPING_END_EVENT; advance()) {
          if (event_.type != YAML_SCALAR_EVENT) fail("a key must be text", event_.start_mark.line);
          const std::string key(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
          if (dict.find(key)) fail("'" + key + "' is there twice", event_.start_mark.line);
          advance();
          dict[key] = node();
        }
        return dict;
      }
      case YAML_ALIAS_EVENT:
        fail("aliases (*name) are not read", event_.start_mark.line);
      default:
        fail("a value is missing", event_.start_mark.line);
    }
  }

  std::string what_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

}  // namespace

Value parse_json(const std::string& text, const std::string& what) {
  try {
    return from_json(nlohmann::ordered_json::parse(text, nullptr, true, /*ignore_comments=*/true));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kArgument, what + ": " + error.what(), "give JSON");
  }
}

Dict read_file(const std::string& path) {
  const std::string text = read(path);
  const Value value = path.ends_with(".json") ? parse_json(text, path) : Yaml(text, path).document();
  if (!value.is_dict()) throw Error(ErrorCode::kArgument, path + " holds " + value.type_name() + ", not names with values");
  return value.as_dict();
}

}  // namespace arguments
}  // namespace gannet
