#include "common/yaml.h"

#include <gannet/error.h>
#include <yaml.h>

#include <charconv>
#include <optional>
#include <utility>

namespace gannet::common {
namespace {

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

class Yaml {
 public:
  Yaml(const std::string& text, std::string what, YamlLines* lines) : what_(std::move(what)), lines_(lines) {
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
    return event_.type == YAML_STREAM_END_EVENT ? Value(Dict()) : node("");
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
  Value node(const std::string& path) {  // the value that begins with the current event; reads up to its last event
    switch (event_.type) {
      case YAML_SCALAR_EVENT:
        return scalar();
      case YAML_SEQUENCE_START_EVENT: {
        List list;
        for (advance(); event_.type != YAML_SEQUENCE_END_EVENT; advance())
          list.push_back(node(path + "[" + std::to_string(list.size()) + "]"));
        return list;
      }
      case YAML_MAPPING_START_EVENT: {
        Dict dict;
        for (advance(); event_.type != YAML_MAPPING_END_EVENT; advance()) {
          if (event_.type != YAML_SCALAR_EVENT) fail("a key must be text", event_.start_mark.line);
          const std::string key(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
          if (dict.find(key)) fail("'" + key + "' is there twice", event_.start_mark.line);
          const std::string inner = path.empty() ? key : path + "." + key;
          if (lines_) (*lines_)[inner] = event_.start_mark.line + 1;
          advance();
          dict[key] = node(inner);
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
  YamlLines* lines_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

}  // namespace

Value parse_yaml(const std::string& text, const std::string& what, YamlLines* lines) {
  return Yaml(text, what, lines).document();
}

}  // namespace gannet::common
