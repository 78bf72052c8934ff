// Expressions of sizes have Python's values, and none overflows.
#include "sizes.h"

#include <gannet/error.h>
#include <gtest/gtest.h>

#include <limits>

namespace {

using gannet::List;
using gannet::Value;
using namespace gannet::exported;

const std::vector<Symbol> kSymbols = {{"s0", 2, {}}, {"s1", 2, 32}};

std::optional<int64_t> value_of(const Value& json, int64_t a, int64_t b) {
  const int64_t values[] = {a, b};
  return evaluate(read_size(json, kSymbols, "here"), values);
}
bool is_true(const Value& json, int64_t a, int64_t b) {
  const int64_t values[] = {a, b};
  return holds(read_relation(json, kSymbols, "here"), values);
}

TEST(Sizes, HavePythonsValues) {
  EXPECT_EQ(value_of(List{"*", "s0", List{"+", "s1", 1}}, 2, 8), 18);
  // Python: -7 // 2 == -4, -7 % 2 == 1, 7 // -2 == -4, 7 % -2 == -1
  EXPECT_EQ(value_of(List{"//", "s0", "s1"}, -7, 2), -4);
  EXPECT_EQ(value_of(List{"%", "s0", "s1"}, -7, 2), 1);
  EXPECT_EQ(value_of(List{"//", "s0", "s1"}, 7, -2), -4);
  EXPECT_EQ(value_of(List{"%", "s0", "s1"}, 7, -2), -1);
  EXPECT_EQ(value_of(List{"//", "s0", "s1"}, -8, 2), -4);
  EXPECT_EQ(value_of(List{"max", List{"-", "s0", 3}, "s1"}, 7, 3), 4);
  EXPECT_EQ(value_of(List{"min", "s0", "s1"}, 7, 3), 3);
}

TEST(Sizes, ThatDivideByZeroOrOverflowHaveNoValue) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max(), kSmallest = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(value_of(List{"//", "s0", "s1"}, 1, 0), std::nullopt);
  EXPECT_EQ(value_of(List{"%", "s0", "s1"}, 1, 0), std::nullopt);
  EXPECT_EQ(value_of(List{"//", "s0", "s1"}, kSmallest, -1), std::nullopt);
  EXPECT_EQ(value_of(List{"%", "s0", "s1"}, kSmallest, -1), 0);
  EXPECT_EQ(value_of(List{"*", "s0", "s1"}, kLargest, 2), std::nullopt);
  EXPECT_EQ(value_of(List{"+", "s0", "s1"}, kLargest, 1), std::nullopt);
  EXPECT_EQ(value_of(List{"-", "s0", "s1"}, kSmallest, 1), std::nullopt);
  EXPECT_FALSE(is_true(List{"==", List{"//", "s0", "s1"}, List{"//", "s0", "s1"}}, 1, 0));
}

TEST(Relations, CompareAndCombine) {
  EXPECT_TRUE(is_true(List{"==", List{"*", "s0", 2}, "s1"}, 2, 4));
  EXPECT_FALSE(is_true(List{"!=", "s0", "s1"}, 4, 4));
  EXPECT_TRUE(is_true(List{"or", List{"<", "s0", 2}, List{">=", "s1", 4}}, 2, 4));
  EXPECT_FALSE(is_true(List{"not", List{"<=", "s0", "s1"}}, 2, 4));
  EXPECT_FALSE(is_true(List{">", "s0", "s1"}, 4, 4));
}

TEST(Relations, AreReadableWithTheNamesOfSizes) {
  const std::string names[] = {"ids.size(0)", "ids.size(1)"};
  const Relation relation =
      read_relation(List{"==", List{"*", "s0", List{"+", "s1", 1}}, List{"max", "s0", 3}}, kSymbols, "here");
  EXPECT_EQ(to_text(relation, names), "ids.size(0) * (ids.size(1) + 1) == max(ids.size(0), 3)");
}

TEST(Sizes, OfAnotherFormAreRefused) {
  for (const Value& json : {Value(1.5), Value(true), Value(List{}), Value(List{1, 2}), Value("s2"), Value(List{"+", 1}), Value()})
    EXPECT_THROW(read_size(json, kSymbols, "here"), gannet::Error);
}

}  // namespace
