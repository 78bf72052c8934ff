// Converts members of TrainingArguments to and from Value.
#pragma once

#include <gannet/error.h>
#include <gannet/value.h>

#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "argument_table.h"

namespace gannet::arguments {

[[noreturn]] void fail_type(const std::string& name, const char* wanted, const Value& found);
void check_range(const std::string& name, const ArgumentRange& range, const Value& value);

template <class T>
struct ArgumentConversion;

template <>
struct ArgumentConversion<bool> {
  static constexpr bool kIsOptional = false;
  static const char* type() { return "boolean"; }
  static Value value(bool member) { return member; }
  static bool from(const std::string& name, const Value& value) {
    if (!value.is_bool()) fail_type(name, "true or false", value);
    return value.as_bool();
  }
};
template <>
struct ArgumentConversion<int64_t> {
  static constexpr bool kIsOptional = false;
  static const char* type() { return "integer"; }
  static Value value(int64_t member) { return member; }
  static int64_t from(const std::string& name, const Value& value) {
    if (!value.is_int()) fail_type(name, "an integer", value);
    return value.as_int();
  }
};
template <>
struct ArgumentConversion<double> {
  static constexpr bool kIsOptional = false;
  static const char* type() { return "number"; }
  static Value value(double member) { return member; }
  static double from(const std::string& name, const Value& value) {
    if (!value.is_number() || !std::isfinite(value.as_number())) fail_type(name, "a finite number", value);
    return value.as_number();
  }
};
template <>
struct ArgumentConversion<std::string> {
  static constexpr bool kIsOptional = false;
  static const char* type() { return "text"; }
  static Value value(const std::string& member) { return member.empty() ? Value() : Value(member); }
  static std::string from(const std::string& name, const Value& value) {
    if (value.is_null()) return "";
    // Accepts --resume_from_checkpoint True, as Hugging Face's scripts write it.
    if (name == "resume_from_checkpoint" && value.is_bool()) return value.as_bool() ? "last" : "";
    if (!value.is_string()) fail_type(name, "text", value);
    return value.as_string();
  }
};
template <>
struct ArgumentConversion<std::vector<std::string>> {
  static constexpr bool kIsOptional = false;
  static const char* type() { return "list"; }
  static Value value(const std::vector<std::string>& member) { return List(member.begin(), member.end()); }
  static std::vector<std::string> from(const std::string& name, const Value& value) {
    if (value.is_null()) return {};
    if (value.is_string()) return {value.as_string()};
    if (!value.is_list()) fail_type(name, "a list of texts", value);
    std::vector<std::string> texts;
    for (const Value& part : value.as_list()) {
      if (!part.is_string()) fail_type(name, "a list of texts", value);
      texts.push_back(part.as_string());
    }
    return texts;
  }
};
template <>
struct ArgumentConversion<Dict> {
  static constexpr bool kIsOptional = false;
  static const char* type() { return "dictionary"; }
  static Value value(const Dict& member) { return member.empty() ? Value() : Value(member); }
  static Dict from(const std::string& name, const Value& value) {
    if (value.is_null()) return {};
    if (value.is_string()) return from(name, parse_json(value.as_string(), name));
    if (!value.is_dict()) fail_type(name, "a dictionary", value);
    return value.as_dict();
  }
};
template <>
struct ArgumentConversion<Value> {  // for the argument deepspeed
  static constexpr bool kIsOptional = true;
  static const char* type() { return "text or dictionary"; }
  static Value value(const Value& member) { return member; }
  static Value from(const std::string& name, const Value& value) {
    if (!value.is_null() && !value.is_string() && !value.is_dict()) fail_type(name, "a path or a dictionary", value);
    return value;
  }
};
template <class T>
struct ArgumentConversion<std::optional<T>> {
  static constexpr bool kIsOptional = true;
  static const char* type() { return ArgumentConversion<T>::type(); }
  static Value value(const std::optional<T>& member) { return member ? ArgumentConversion<T>::value(*member) : Value(); }
  static std::optional<T> from(const std::string& name, const Value& value) {
    if (value.is_null()) return std::nullopt;
    return ArgumentConversion<T>::from(name, value);
  }
};

}  // namespace gannet::arguments
