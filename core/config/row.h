// The rows of the keys that Gannet acts on. Each row is bound to a member of Settings, from which
// the rest of Gannet reads the value.
//
//   row("gradient_clipping", member<&Settings::gradient_clipping>, kNumber, "1.0", ">=0", "largest global 2-norm ..."),
//   row("fp16/hysteresis", member<&Settings::fp16, &Fp16::hysteresis>, kInt, "2", "", "overflows before ..."),
//
// The row's default is the member's default. A row with a type that its member cannot hold does not
// compile. A member without a row, or with two, fails a test (tests/config/rows_test.cpp).
#pragma once

#include <type_traits>

#include "config/keys.h"
#include "config/settings.h"

namespace gannet::config {

// Only the function that returns the address is a template, so a row costs one small function;
// store() does the conversions.
template <auto... path>
void* address_of(Settings& settings) {
  return &(settings.*....*path);
}

template <typename T>
constexpr Member::Kind kind_of = Member::Kind::kNone;
template <>
inline constexpr Member::Kind kind_of<bool> = Member::Kind::kBool;
template <>
inline constexpr Member::Kind kind_of<int64_t> = Member::Kind::kInt;
template <>
inline constexpr Member::Kind kind_of<double> = Member::Kind::kNumber;
template <>
inline constexpr Member::Kind kind_of<std::string> = Member::Kind::kString;
template <>
inline constexpr Member::Kind kind_of<std::vector<std::string>> = Member::Kind::kStrings;
template <>
inline constexpr Member::Kind kind_of<List> = Member::Kind::kList;
template <>
inline constexpr Member::Kind kind_of<Dict> = Member::Kind::kDict;
template <>
inline constexpr Member::Kind kind_of<std::optional<int64_t>> = Member::Kind::kOptionalInt;
template <>
inline constexpr Member::Kind kind_of<std::optional<double>> = Member::Kind::kOptionalNumber;
template <>
inline constexpr Member::Kind kind_of<std::optional<DType>> = Member::Kind::kOptionalDType;

template <auto... path>
using TypeOf = std::remove_reference_t<decltype((std::declval<Settings&>().*....*path))>;

// The member at the end of a path of member pointers.
template <auto... path>
inline constexpr Member member{kind_of<TypeOf<path...>>, &address_of<path...>};
// One entry of a Dict, under the name of the key, for values that plugins read.
template <auto... path>
inline constexpr Member entry{Member::Kind::kEntry, &address_of<path...>};

consteval bool holds(Member::Kind kind, Type type, std::string_view range) {
  using enum Type;
  const bool is_choice = type == kChoice || type == kWord;
  switch (kind) {
    case Member::Kind::kNone:
      return false;
    case Member::Kind::kBool:
      return type == kBool || (is_choice && range.find('|') < range.size() && range.find('|') == range.rfind('|'));
    case Member::Kind::kInt:
    case Member::Kind::kOptionalInt:
      return type == kInt || type == kSize || type == kBytes;
    case Member::Kind::kNumber:
    case Member::Kind::kOptionalNumber:
      return type == kNumber;
    case Member::Kind::kString:
      return type == kString || type == kFile || is_choice;
    case Member::Kind::kStrings:
      return type == kStrings;
    case Member::Kind::kList:
      return type == kObjects;
    case Member::Kind::kDict:
      return type == kFree;
    case Member::Kind::kEntry:
      return type != kSection && type != kOpenSection && type != kFree && type != kObjects;
    case Member::Kind::kOptionalDType:
      return type == kDType || type == kWord;
  }
  return false;
}

consteval Key row(std::string_view path, Member member, Type type, std::string_view default_json, std::string_view range,
                  std::string_view meaning, Status status = Status::kActive, std::string_view alias = "") {
  if (!holds(member.kind, type, range)) throw "the member cannot hold a value of the row's type";
  if (default_json == "null" && (member.kind == Member::Kind::kBool || member.kind == Member::Kind::kNumber))
    throw "the member cannot be empty: give it a default, or make it a std::optional";
  if (!is_read(status)) throw "a key that Gannet does not act on has no member";
  return {.path = path,
          .type = type,
          .default_json = default_json,
          .status = status,
          .range = range,
          .meaning = meaning,
          .alias = alias,
          .member = member};
}

// The row of a key that accepts only its default: the member exists, and its readers always find
// the default there.
consteval Key refused_row(std::string_view path, Member member, Type type, std::string_view default_json, std::string_view range,
                          std::string_view meaning, std::string_view not_done) {
  Key key = row(path, member, type, default_json, range, meaning);
  key.status = Status::kUnsupported;
  key.note = not_done;
  return key;
}

}  // namespace gannet::config
