#include <gannet/error.h>
#include <gannet/value.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"

namespace gannet {
namespace {

[[noreturn]] void wrong_type(const Value& value, const char* wanted) {
  throw Error(ErrorCode::kArgument, formatted("expected {}, found {}: {}", wanted, value.type_name(), value.to_json()));
}

// Bytes that are not UTF-8 (a path, a host name) become U+FFFD, because JSON readers accept only
// UTF-8.
void write_string(std::string& out, const std::string& text) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Does not use the JSON library, which writes 100000.0 and 0.0003. Instead writes the shortest text
// that reads back as the same number, 1e+05 and 3e-04, a form that metrics files and printed
// configs must keep.
void write_number(std::string& out, double number) {
  if (!std::isfinite(number)) {  // JSON has no such numbers; DeepSpeed's reader accepts these words
    out += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number).ptr;
  out.append(buffer, end);
  if (std::find_if(buffer, end, [](char c) { return c == '.' || c == 'e'; }) == end) out += ".0";
}

void write(std::string& out, const Value& value) {
  if (value.is_null())
    out += "null";
  else if (value.is_bool())
    out += value.as_bool() ? "true" : "false";
  else if (value.is_int())
    out += std::to_string(value.as_int());
  else if (value.is_number())
    write_number(out, value.as_number());
  else if (value.is_string())
    write_string(out, value.as_string());
  else if (value.is_list()) {
    out += '[';
    bool first = true;
    for (const auto& element : value.as_list()) {
      if (!std::exchange(first, false)) out += ", ";
      write(out, element);
    }
    out += ']';
  } else {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.as_dict().entries()) {
      if (!std::exchange(first, false)) out += ", ";
      write_string(out, key);
      out += ": ";
      write(out, member);
    }
    out += '}';
  }
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.first == key; });
  return found == entries_.end() ? nullptr : &found->second;
}

Value* Dict::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Dict::operator[](std::string_view key) {
  if (Value* found = find(key)) return *found;
  return entries_.emplace_back(std::string(key), Value()).second;
}

bool Dict::erase(std::string_view key) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.first == key; }) > 0;
}

bool Value::as_bool() const {
  if (!is_bool()) wrong_type(*this, "a boolean");
  return std::get<bool>(data_);
}

int64_t Value::as_int() const {
  if (!is_int()) wrong_type(*this, "an integer");
  return std::get<int64_t>(data_);
}

double Value::as_number() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(data_));
  if (!is_number()) wrong_type(*this, "a number");
  return std::get<double>(data_);
}

const std::string& Value::as_string() const {
  if (!is_string()) wrong_type(*this, "a string");
  return std::get<std::string>(data_);
}

const List& Value::as_list() const {
  if (!is_list()) wrong_type(*this, "a list");
  return std::get<List>(data_);
}

List& Value::as_list() { return const_cast<List&>(std::as_const(*this).as_list()); }

const Dict& Value::as_dict() const {
  if (!is_dict()) wrong_type(*this, "a dictionary");
  return std::get<Dict>(data_);
}

Dict& Value::as_dict() { return const_cast<Dict&>(std::as_const(*this).as_dict()); }

const Value& Value::at(std::string_view key) const {
  const Value* found = as_dict().find(key);
  if (!found) throw Error(ErrorCode::kArgument, formatted("there is no '{}' in {}", key, to_json()));
  return *found;
}

const char* Value::type_name() const {
  if (is_null()) return "null";
  if (is_bool()) return "a boolean";
  if (is_int()) return "an integer";
  if (is_number()) return "a number";
  if (is_string()) return "a string";
  if (is_list()) return "a list";
  return "a dictionary";
}

std::string Value::to_json() const {
  std::string out;
  write(out, *this);
  return out;
}

bool Value::operator==(const Value& other) const {
  if (is_dict() && other.is_dict()) return as_dict().entries() == other.as_dict().entries();
  return data_.index() == other.data_.index() && to_json() == other.to_json();
}

}  // namespace gannet
