// Input sizes as expressions of symbols, and relations between them: the trace's assumptions about
// a batch.
//
//   Size size = read_size(json, ...);            // ["*", "s0", ["+", "s1", 1]]
//   evaluate(size, {2, 8});                      // 18
//   holds(relation, {2, 8});                     // ["==", "s0", 2]: true
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gannet::exported {

struct Symbol {
  std::string name;
  int64_t min = 0;
  std::optional<int64_t> max;
};

struct Size {
  enum class Op { kNumber, kSymbol, kAdd, kSub, kMul, kFloorDiv, kMod, kMax, kMin };
  Op op = Op::kNumber;
  int64_t number = 0;  // kSymbol: the index of the symbol
  std::vector<Size> operands;
};

struct Relation {
  enum class Op { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kOr, kNot };
  Op op = Op::kEqual;
  std::vector<Size> sizes;          // two, for comparisons
  std::vector<Relation> relations;  // kOr: at least one; kNot: one
};

// `where` begins the message. Throws Error(kCorrupt).
Size read_size(const Value& json, const std::vector<Symbol>& symbols, const std::string& where);
Relation read_relation(const Value& json, const std::vector<Symbol>& symbols, const std::string& where);

// With Python's floor division and remainder. Returns nullopt on division by zero or if a number
// exceeds 64 bits.
std::optional<int64_t> floor_divide(int64_t a, int64_t b);
std::optional<int64_t> floor_remainder(int64_t a, int64_t b);

// Returns nullopt in the same cases; a relation with such a size does not hold.
std::optional<int64_t> evaluate(const Size& size, std::span<const int64_t> values);
bool holds(const Relation& relation, std::span<const int64_t> values);

// "s0 * (s1 + 1)", with the symbols' names taken from `names`.
std::string to_text(const Size& size, std::span<const std::string> names);
std::string to_text(const Relation& relation, std::span<const std::string> names);

}  // namespace gannet::exported
