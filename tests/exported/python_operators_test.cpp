// Python's operators on numbers: the values beside them are Python's.
#include "python_operators.h"

#include <ATen/ops/ones.h>
#include <gannet/error.h>
#include <gtest/gtest.h>

#include <limits>

namespace {

using c10::IValue;
using gannet::exported::element_of;
using gannet::exported::python_operator;

IValue call(const std::string& name, std::vector<IValue> operands) { return python_operator(name).call(operands); }

TEST(PythonOperators, OnIntegersGiveIntegers) {
  EXPECT_EQ(call("py.add", {2, 3}).toInt(), 5);
  EXPECT_EQ(call("py.sub", {2, 3}).toInt(), -1);
  EXPECT_EQ(call("py.mul", {2, -3}).toInt(), -6);
  EXPECT_EQ(call("py.floordiv", {-7, 2}).toInt(), -4);
  EXPECT_EQ(call("py.mod", {-7, 2}).toInt(), 1);
  EXPECT_EQ(call("py.pow", {-3, 3}).toInt(), -27);
  EXPECT_EQ(call("py.pow", {-1, 1000000001}).toInt(), -1);
  EXPECT_EQ(call("py.neg", {3}).toInt(), -3);
  EXPECT_EQ(call("py.add", {true, 3}).toInt(), 4);
  EXPECT_EQ(call("py.max", {2, 3}).toInt(), 3);
  EXPECT_EQ(call("py.min", {2, 3}).toInt(), 2);
  EXPECT_EQ(call("py.sum", {c10::List<int64_t>({1, 2, 4})}).toInt(), 7);
  EXPECT_EQ(call("py.if_else", {true, 2, 3}).toInt(), 2);
}

TEST(PythonOperators, OnFloatsGiveFloats) {
  EXPECT_EQ(call("py.truediv", {7, 2}).toDouble(), 3.5);
  EXPECT_EQ(call("py.add", {2, 0.5}).toDouble(), 2.5);
  EXPECT_EQ(call("py.floordiv", {-7.5, 2}).toDouble(), -4);
  EXPECT_EQ(call("py.mod", {-7.5, 2}).toDouble(), 0.5);
  EXPECT_EQ(call("py.pow", {2, -1}).toDouble(), 0.5);
  EXPECT_EQ(call("py.float", {3}).toDouble(), 3);
  EXPECT_EQ(call("py.floor", {-2.5}).toInt(), -3);
  EXPECT_EQ(call("py.ceil", {-2.5}).toInt(), -2);
  EXPECT_EQ(call("py.trunc", {-2.5}).toInt(), -2);
}

TEST(PythonOperators, CompareAndCombine) {
  EXPECT_TRUE(call("py.lt", {2, 2.5}).toBool());
  EXPECT_TRUE(call("py.ge", {2, 2}).toBool());
  EXPECT_FALSE(call("py.ne", {2, 2.0}).toBool());
  EXPECT_TRUE(call("py.and", {true, 1}).toBool());
  EXPECT_FALSE(call("py.or", {false, 0}).toBool());
  EXPECT_FALSE(call("py.not", {true}).toBool());
}

TEST(PythonOperators, WithoutAResultThrow) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const std::vector<std::pair<std::string, std::vector<IValue>>> cases = {
      {"py.floordiv", {1, 0}}, {"py.mod", {1, 0}},       {"py.truediv", {1, 0}},
      {"py.mod", {1.5, 0.0}},  {"py.add", {largest, 1}}, {"py.mul", {largest, 2}},
      {"py.pow", {10, 30}},    {"py.trunc", {1e300}},    {"py.add", {"a", 1}},
      {"py.size", {3, 0}},     {"py.assert", {false}},   {"py.neg", {std::numeric_limits<int64_t>::min()}}};
  for (const auto& [name, operands] : cases) EXPECT_THROW(call(name, operands), gannet::Error) << name;
  EXPECT_EQ(python_operator("py.exec").call, nullptr);
}

TEST(PythonOperators, ReadTensorsAndLists) {
  const at::Tensor tensor = at::ones({2, 3});
  EXPECT_EQ(call("py.size", {tensor, 1}).toInt(), 3);
  EXPECT_EQ(call("py.size", {tensor, -2}).toInt(), 2);
  EXPECT_EQ(call("py.stride", {tensor, 0}).toInt(), 3);
  EXPECT_EQ(call("py.numel", {tensor}).toInt(), 6);
  const IValue list = c10::List<int64_t>({4, 5, 6});
  EXPECT_EQ(element_of(list, -1).toInt(), 6);
  EXPECT_THROW(element_of(list, 3), gannet::Error);
  EXPECT_THROW(element_of(list, -4), gannet::Error);
  EXPECT_THROW(element_of(3, 0), gannet::Error);
}

}  // namespace
