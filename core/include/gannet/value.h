/// A value of a config that is made in code: null, boolean, integer, number, string, list or
/// dictionary, with any nesting.
///
///   gannet::Value config = gannet::Dict{
///       {"train_micro_batch_size_per_gpu", 4},
///       {"optimizer", gannet::Dict{{"type", "AdamW"},
///                                  {"params", gannet::Dict{{"lr", 3e-4}, {"betas", gannet::List{0.9, 0.95}}}}}},
///   };
///   config.at("optimizer").at("type").as_string();   // "AdamW"
///
/// A dictionary keeps the order of insertion, as a file does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gannet {

class Value;
using List = std::vector<Value>;

/// An ordered dictionary. Its keys should be unique, which Config checks and this class does not.
class Dict {
 public:
  using Entry = std::pair<std::string, Value>;
  Dict() = default;
  Dict(std::initializer_list<Entry> entries);

  /// The value, or null if the key is missing.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  /// Inserts null if the key is missing.
  Value& operator[](std::string_view key);
  bool erase(std::string_view key);
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }
  bool empty() const;

 private:
  std::vector<Entry> entries_;
};

class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(List value) : data_(std::move(value)) {}
  Value(Dict value) : data_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_list() const { return std::holds_alternative<List>(data_); }
  bool is_dict() const { return std::holds_alternative<Dict>(data_); }

  /// These functions throw Error(kArgument), which names the type found, if the value has a
  /// different type.
  bool as_bool() const;
  int64_t as_int() const;
  double as_number() const;
  const std::string& as_string() const;
  const List& as_list() const;
  List& as_list();
  const Dict& as_dict() const;
  Dict& as_dict();
  /// Returns a member of a dictionary. Throws Error(kArgument) if it is missing.
  const Value& at(std::string_view key) const;

  /// "a boolean", "an integer", "a number", "a string", "a list", "a dictionary", "null".
  const char* type_name() const;
  /// JSON text on one line; numbers in the shortest form that reads back equal. Bytes that are not
  /// UTF-8 become U+FFFD.
  std::string to_json() const;

  bool operator==(const Value& other) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Dict> data_;
};

// Defined here because Value must be a complete type.
inline Dict::Dict(std::initializer_list<Entry> entries) : entries_(entries) {}
inline bool Dict::empty() const { return entries_.empty(); }

}  // namespace gannet
