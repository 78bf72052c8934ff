#include "sizes.h"

#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace gannet::exported {
namespace {

constexpr std::array<std::pair<const char*, Size::Op>, 7> kSizeOps = {{{"+", Size::Op::kAdd},
                                                                       {"-", Size::Op::kSub},
                                                                       {"*", Size::Op::kMul},
                                                                       {"//", Size::Op::kFloorDiv},
                                                                       {"%", Size::Op::kMod},
                                                                       {"max", Size::Op::kMax},
                                                                       {"min", Size::Op::kMin}}};
constexpr std::array<std::pair<const char*, Relation::Op>, 6> kComparisons = {{{"==", Relation::Op::kEqual},
                                                                               {"!=", Relation::Op::kNotEqual},
                                                                               {"<", Relation::Op::kLess},
                                                                               {"<=", Relation::Op::kLessEqual},
                                                                               {">", Relation::Op::kGreater},
                                                                               {">=", Relation::Op::kGreaterEqual}}};

[[noreturn]] void refuse(const std::string& where, const std::string& found) {
  throw Error(ErrorCode::kCorrupt, where + ": " + found, "export the model again");
}

template <class Table>
auto find(const Table& table, const std::string& name) {
  return std::find_if(table.begin(), table.end(), [&](const auto& row) { return name == row.first; });
}

// The operator of a list, and the number of its operands.
std::pair<std::string, size_t> head_of(const Value& json, const std::string& where) {
  if (!json.is_list() || json.as_list().empty() || !json.as_list()[0].is_string())
    refuse(where,
           "a size is an integer, a symbol or a list of an operator and its operands, found " + std::string(json.type_name()));
  return {json.as_list()[0].as_string(), json.as_list().size() - 1};
}

const char* sign_of(Size::Op op) {
  return std::find_if(kSizeOps.begin(), kSizeOps.end(), [&](const auto& row) { return row.second == op; })->first;
}
const char* sign_of(Relation::Op op) {
  return std::find_if(kComparisons.begin(), kComparisons.end(), [&](const auto& row) { return row.second == op; })->first;
}

}  // namespace

Size read_size(const Value& json, const std::vector<Symbol>& symbols, const std::string& where) {
  if (json.is_int()) return {Size::Op::kNumber, json.as_int(), {}};
  if (json.is_string()) {
    for (size_t i = 0; i < symbols.size(); ++i)
      if (symbols[i].name == json.as_string()) return {Size::Op::kSymbol, static_cast<int64_t>(i), {}};
    refuse(where, "the symbol '" + json.as_string() + "' is not among the file's symbols");
  }
  const auto [name, count] = head_of(json, where);
  const auto found = find(kSizeOps, name);
  if (found == kSizeOps.end()) refuse(where, "'" + name + "' is not an operator of sizes");
  if (count != 2) refuse(where, "'" + name + "' has " + std::to_string(count) + " operands, and needs 2");
  Size size{found->second, 0, {}};
  for (size_t i = 1; i <= 2; ++i) size.operands.push_back(read_size(json.as_list()[i], symbols, where));
  return size;
}

Relation read_relation(const Value& json, const std::vector<Symbol>& symbols, const std::string& where) {
  const auto [name, count] = head_of(json, where);
  Relation relation;
  if (name == "or" || name == "not") {
    relation.op = name == "or" ? Relation::Op::kOr : Relation::Op::kNot;
    if (count == 0 || (name == "not" && count != 1)) refuse(where, "'" + name + "' has " + std::to_string(count) + " operands");
    for (size_t i = 1; i <= count; ++i) relation.relations.push_back(read_relation(json.as_list()[i], symbols, where));
    return relation;
  }
  const auto found = find(kComparisons, name);
  if (found == kComparisons.end()) refuse(where, "'" + name + "' is not a relation of sizes");
  if (count != 2) refuse(where, "'" + name + "' has " + std::to_string(count) + " operands, and needs 2");
  relation.op = found->second;
  for (size_t i = 1; i <= 2; ++i) relation.sizes.push_back(read_size(json.as_list()[i], symbols, where));
  return relation;
}

std::optional<int64_t> floor_divide(int64_t a, int64_t b) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1)) return std::nullopt;
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::optional<int64_t> floor_remainder(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;  // a % -1 overflows for the smallest a
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::optional<int64_t> evaluate(const Size& size, std::span<const int64_t> values) {
  if (size.op == Size::Op::kNumber) return size.number;
  if (size.op == Size::Op::kSymbol) return values[static_cast<size_t>(size.number)];
  const auto a = evaluate(size.operands[0], values), b = evaluate(size.operands[1], values);
  if (!a || !b) return std::nullopt;
  int64_t result = 0;
  switch (size.op) {
    case Size::Op::kAdd:
      return __builtin_add_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
    case Size::Op::kSub:
      return __builtin_sub_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
    case Size::Op::kMul:
      return __builtin_mul_overflow(*a, *b, &result) ? std::nullopt : std::optional(result);
    case Size::Op::kFloorDiv:
      return floor_divide(*a, *b);
    case Size::Op::kMod:
      return floor_remainder(*a, *b);
    case Size::Op::kMax:
      return std::max(*a, *b);
    default:
      return std::min(*a, *b);
  }
}

bool holds(const Relation& relation, std::span<const int64_t> values) {
  if (relation.op == Relation::Op::kOr)
    return std::any_of(relation.relations.begin(), relation.relations.end(),
                       [&](const Relation& one) { return holds(one, values); });
  if (relation.op == Relation::Op::kNot) return !holds(relation.relations[0], values);
  const auto a = evaluate(relation.sizes[0], values), b = evaluate(relation.sizes[1], values);
  if (!a || !b) return false;
  switch (relation.op) {
    case Relation::Op::kEqual:
      return *a == *b;
    case Relation::Op::kNotEqual:
      return *a != *b;
    case Relation::Op::kLess:
      return *a < *b;
    case Relation::Op::kLessEqual:
      return *a <= *b;
    case Relation::Op::kGreater:
      return *a > *b;
    default:
      return *a >= *b;
  }
}

std::string to_text(const Size& size, std::span<const std::string> names) {
  if (size.op == Size::Op::kNumber) return std::to_string(size.number);
  if (size.op == Size::Op::kSymbol) return names[static_cast<size_t>(size.number)];
  const std::string a = to_text(size.operands[0], names), b = to_text(size.operands[1], names);
  if (size.op == Size::Op::kMax || size.op == Size::Op::kMin) return std::string(sign_of(size.op)) + "(" + a + ", " + b + ")";
  const auto in_brackets = [](const Size& part, const std::string& text) {
    return part.op == Size::Op::kNumber || part.op == Size::Op::kSymbol ? text : "(" + text + ")";
  };
  return in_brackets(size.operands[0], a) + " " + sign_of(size.op) + " " + in_brackets(size.operands[1], b);
}

std::string to_text(const Relation& relation, std::span<const std::string> names) {
  if (relation.op == Relation::Op::kNot) return "not (" + to_text(relation.relations[0], names) + ")";
  if (relation.op == Relation::Op::kOr) {
    std::string text;
    for (const Relation& one : relation.relations) text += (text.empty() ? "" : " or ") + to_text(one, names);
    return text;
  }
  return to_text(relation.sizes[0], names) + " " + sign_of(relation.op) + " " + to_text(relation.sizes[1], names);
}

}  // namespace gannet::exported
