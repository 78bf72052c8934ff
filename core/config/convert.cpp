#include "config/convert.h"

#include <gannet/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/format.h"
#include "base/text.h"

namespace gannet::config {
namespace {

template <typename T>
std::optional<T> parse_number(const std::string& text) {
  T number{};
  const size_t begin = text.starts_with('+') ? 1 : 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<Value> to_bool(const Value& value) {
  if (value.is_bool()) return value;
  if (value.is_number() && (value.as_number() == 0 || value.as_number() == 1)) return Value(value.as_number() == 1);
  if (!value.is_string()) return std::nullopt;
  const std::string word = lower(value.as_string());
  for (const char* yes : {"true", "t", "yes", "y", "on", "1"})
    if (word == yes) return Value(true);
  for (const char* no : {"false", "f", "no", "n", "off", "0"})
    if (word == no) return Value(false);
  return std::nullopt;
}

std::optional<Value> to_int(const Value& value) {
  if (value.is_int()) return value;
  if (value.is_number()) {
    const double number = value.as_number();  // 2^63 itself does not fit
    if (std::trunc(number) == number && number >= -0x1p63 && number < 0x1p63) return Value(static_cast<int64_t>(number));
  } else if (value.is_string()) {
    if (const auto number = parse_number<int64_t>(value.as_string())) return Value(*number);
  }
  return std::nullopt;
}

std::optional<Value> to_size(const Value& value) {
  return to_int(value.is_number() && !value.is_int() ? Value(std::floor(value.as_number())) : value);
}

std::optional<Value> to_bytes(const Value& value) {
  if (!value.is_string()) return to_size(value);
  const auto bytes = parse_bytes(value.as_string());
  return bytes ? std::optional<Value>(static_cast<int64_t>(*bytes)) : std::nullopt;
}

std::optional<Value> to_number(const Value& value) {
  std::optional<double> number;
  if (value.is_number()) number = value.as_number();
  if (value.is_string()) number = parse_number<double>(value.as_string());
  if (!number || !std::isfinite(*number)) return std::nullopt;
  return Value(*number);
}

std::optional<Value> to_choice(const Key& key, const Value& value) {
  if (!value.is_string()) return std::nullopt;
  for (const std::string& choice : split(key.range, '|')) {
    if (choice.starts_with("*") && value.as_string().ends_with(choice.substr(1))) return value;  // *.csv: a file
    if (value.as_string() == choice || (key.type == Type::kWord && lower(value.as_string()) == lower(choice)))
      return Value(choice);
  }
  return std::nullopt;
}

std::optional<Value> to_dtype(const Value& value) {
  if (!value.is_string()) return std::nullopt;
  std::string name = value.as_string();
  if (name.starts_with("torch.")) name = name.substr(6);
  for (const char* spelling : {"fp32", "float32", "float"})
    if (name == spelling) return Value("fp32");
  for (const char* spelling : {"fp16", "float16", "half"})
    if (name == spelling) return Value("fp16");
  for (const char* spelling : {"bf16", "bfloat16"})
    if (name == spelling) return Value("bf16");
  return name == "int8" ? std::optional(Value("int8")) : std::nullopt;
}

std::optional<Value> to_file(const Value& value) {
  if (value.is_bool()) return Value(value.as_bool() ? "true" : "");
  return value.is_string() && !value.as_string().empty() ? std::optional(value) : std::nullopt;
}

std::optional<Value> to_strings(const Value& value) {
  if (value.is_string()) return Value(List{value});
  const auto is_string = [](const Value& element) { return element.is_string(); };
  return value.is_list() && std::all_of(value.as_list().begin(), value.as_list().end(), is_string) ? std::optional(value)
                                                                                                   : std::nullopt;
}

std::optional<Value> to_objects(const Value& value) {
  const auto is_object = [](const Value& element) { return element.is_dict(); };
  return value.is_list() && std::all_of(value.as_list().begin(), value.as_list().end(), is_object) ? std::optional(value)
                                                                                                   : std::nullopt;
}

std::optional<Value> to_type(const Key& key, const Value& value) {
  switch (key.type) {
    case Type::kBool:
      return to_bool(value);
    case Type::kInt:
      return to_int(value);
    case Type::kSize:
      return to_size(value);
    case Type::kBytes:
      return to_bytes(value);
    case Type::kNumber:
      return to_number(value);
    case Type::kString:
      return value.is_string() ? std::optional(value) : std::nullopt;
    case Type::kChoice:
    case Type::kWord:
      return to_choice(key, value);
    case Type::kDType:
      return to_dtype(value);
    case Type::kFile:
      return to_file(value);
    case Type::kList:
      return value.is_list() ? std::optional(value) : std::nullopt;
    case Type::kStrings:
      return to_strings(value);
    case Type::kObjects:
      return to_objects(value);
    case Type::kAny:
      return value;
    case Type::kSection:
    case Type::kOpenSection:
    case Type::kFree:
      return value.is_dict() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

bool in_range(std::string_view range, double number) {
  if (range.empty()) return true;
  const size_t dots = range.find("..");
  if (dots != std::string_view::npos)
    return number >= *parse_number<double>(std::string(range.substr(0, dots))) &&
           number <= *parse_number<double>(std::string(range.substr(dots + 2)));
  return range.starts_with(">=") ? number >= *parse_number<double>(std::string(range.substr(2)))
                                 : number > *parse_number<double>(std::string(range.substr(1)));
}

// The hint for a scalar in place of a section ("bf16": true, "optimizer": "AdamW",
// "zero_optimization": 2): how to write it as a section. "" if the scalar fits no member of the
// section.
std::string as_section(const Key& key, const Value& value) {
  if (!key.is_section()) return "";
  const auto has = [&](const char* name) { return find_key(formatted("{}/{}", key.path, name)) != nullptr; };
  const auto write = [&](const char* name, const Value& inner) {
    return formatted("write \"{}\": {{\"{}\": {}}}", key.name(), name, inner.to_json());
  };
  if (value.is_string() && value.as_string().size() <= 40)
    for (const char* name : {"type", "device"})
      if (has(name)) return write(name, value);
  if (value.is_int() && has("stage")) return write("stage", value);
  if (const auto on = to_bool(value); on && has("enabled")) return write("enabled", *on);
  return "";
}

}  // namespace

std::string wanted(const Key& key) {
  std::string range(key.range);
  if (!range.empty()) range.insert(range.begin(), ' ');
  switch (key.type) {
    case Type::kBool:
      return "true or false";
    case Type::kInt:
    case Type::kSize:
      return formatted("an integer{}", range);
    case Type::kBytes:
      return formatted("a number of bytes, as 2000000000, 2GB or 512MiB{}", range);
    case Type::kNumber:
      return formatted("a finite number{}", range);
    case Type::kString:
      return "a string";
    case Type::kChoice:
    case Type::kWord:
      return formatted("one of {}", join(split(key.range, '|'), ", "));
    case Type::kDType:
      return "one of fp32, fp16, bf16, int8";
    case Type::kFile:
      return "true, false or the path of a file";
    case Type::kList:
      return "a list";
    case Type::kStrings:
      return "a list of strings";
    case Type::kObjects:
      return "a list of objects [{ ... }, ...]";
    case Type::kAny:
      return "a value";
    case Type::kSection:
    case Type::kOpenSection:
    case Type::kFree:
      return "an object { ... }";
  }
  return "";
}

Value convert(const Key& key, const Value& value, const std::string& where) {
  const std::optional<Value> converted = to_type(key, value);
  if (converted && (!converted->is_number() || in_range(key.range, converted->as_number()))) return *converted;
  std::string hint;
  const bool is_word = key.type == Type::kChoice || key.type == Type::kWord;
  if (value.is_string() && is_word) hint = did_you_mean(value.as_string(), split(key.range, '|'));
  if (value.is_string() && key.type == Type::kDType) hint = did_you_mean(value.as_string(), {"fp32", "fp16", "bf16"});
  std::string found = value.is_dict() ? "an object" : value.is_list() ? "a list" : value.to_json();
  if (found.size() > 60) found = formatted("{}...", found.substr(0, 57));
  if (const std::string meant = as_section(key, value); !meant.empty())
    throw Error(ErrorCode::kConfig, formatted("{} must be {}, found {}", where, wanted(key), found), meant);
  std::string next(key.meaning);
  if (key.default_json != "null" && !key.is_section()) next += formatted("; default {}", key.default_json);
  throw Error(ErrorCode::kConfig, formatted("{} must be {}, found {}{}", where, wanted(key), found, hint), next);
}

}  // namespace gannet::config
