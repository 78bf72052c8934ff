#include "python_operators.h"

#include <ATen/core/Tensor.h>
#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "sizes.h"

namespace gannet::exported {
namespace {

using c10::IValue;
using Operands = std::span<const IValue>;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kArgument, what); }

// True counts as 1 in arithmetic, as in Python.
bool is_integral(const IValue& value) { return value.isInt() || value.isBool(); }
int64_t as_int(const IValue& value) {
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  refuse("an integer is expected, found a value of type " + value.tagKind());
}
double as_double(const IValue& value) { return value.isDouble() ? value.toDouble() : static_cast<double>(as_int(value)); }
bool as_bool(const IValue& value) {
  if (value.isBool()) return value.toBool();
  return value.isDouble() ? value.toDouble() != 0 : as_int(value) != 0;
}
bool are_integral(Operands x) { return std::all_of(x.begin(), x.end(), is_integral); }

int64_t checked(bool has_overflowed, int64_t value) {
  if (has_overflowed) refuse("an integer beyond 64 bits");
  return value;
}
int64_t checked(std::optional<int64_t> value) {
  if (!value) refuse("a division of sizes by zero");
  return *value;
}
int64_t to_int(double value) {
  if (!(value >= -9.2e18 && value <= 9.2e18)) refuse("a number that no 64-bit integer holds");
  return static_cast<int64_t>(value);
}

IValue add(Operands x) {
  if (!are_integral(x)) return as_double(x[0]) + as_double(x[1]);
  int64_t result = 0;
  const bool overflow = __builtin_add_overflow(as_int(x[0]), as_int(x[1]), &result);
  return checked(overflow, result);
}
IValue sub(Operands x) {
  if (!are_integral(x)) return as_double(x[0]) - as_double(x[1]);
  int64_t result = 0;
  const bool overflow = __builtin_sub_overflow(as_int(x[0]), as_int(x[1]), &result);
  return checked(overflow, result);
}
IValue mul(Operands x) {
  if (!are_integral(x)) return as_double(x[0]) * as_double(x[1]);
  int64_t result = 0;
  const bool overflow = __builtin_mul_overflow(as_int(x[0]), as_int(x[1]), &result);
  return checked(overflow, result);
}
IValue truediv(Operands x) {
  if (as_double(x[1]) == 0) refuse("a division by zero");
  return as_double(x[0]) / as_double(x[1]);
}
IValue floordiv(Operands x) {
  if (are_integral(x)) return checked(floor_divide(as_int(x[0]), as_int(x[1])));
  if (as_double(x[1]) == 0) refuse("a division by zero");
  return std::floor(as_double(x[0]) / as_double(x[1]));
}
IValue mod(Operands x) {
  if (are_integral(x)) return checked(floor_remainder(as_int(x[0]), as_int(x[1])));
  const double b = as_double(x[1]), rest = b == 0 ? 0 : std::fmod(as_double(x[0]), b);
  if (b == 0) refuse("a division by zero");
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
IValue power(Operands x) {
  if (!are_integral(x) || as_int(x[1]) < 0) return std::pow(as_double(x[0]), as_double(x[1]));
  int64_t result = 1, base = as_int(x[0]);
  bool overflow = false;
  if (base == 0 || base == 1) return as_int(x[1]) == 0 ? int64_t{1} : base;
  if (base == -1) return as_int(x[1]) % 2 == 0 ? int64_t{1} : int64_t{-1};
  for (int64_t i = 0; i < as_int(x[1]) && !overflow; ++i) overflow = __builtin_mul_overflow(result, base, &result);
  return checked(overflow, result);
}
IValue neg(Operands x) {
  if (!is_integral(x[0])) return -as_double(x[0]);
  int64_t result = 0;
  const bool overflow = __builtin_sub_overflow(int64_t{0}, as_int(x[0]), &result);
  return checked(overflow, result);
}
IValue sum(Operands x) {
  if (!x[0].isList()) refuse("a list is expected");
  IValue total = int64_t{0};
  for (const IValue& one : x[0].toListRef()) {
    const IValue pair[] = {total, one};
    total = add(pair);
  }
  return total;
}

template <class Compare>
bool compared(Operands x, Compare compare) {
  return are_integral(x) ? compare(as_int(x[0]), as_int(x[1])) : compare(as_double(x[0]), as_double(x[1]));
}
IValue equal(Operands x) {
  return compared(x, [](auto a, auto b) { return a == b; });
}
IValue not_equal(Operands x) {
  return compared(x, [](auto a, auto b) { return a != b; });
}
IValue less(Operands x) {
  return compared(x, [](auto a, auto b) { return a < b; });
}
IValue less_equal(Operands x) {
  return compared(x, [](auto a, auto b) { return a <= b; });
}
IValue greater(Operands x) {
  return compared(x, [](auto a, auto b) { return a > b; });
}
IValue greater_equal(Operands x) {
  return compared(x, [](auto a, auto b) { return a >= b; });
}
IValue logical_and(Operands x) { return as_bool(x[0]) && as_bool(x[1]); }
IValue logical_or(Operands x) { return as_bool(x[0]) || as_bool(x[1]); }
IValue logical_not(Operands x) { return !as_bool(x[0]); }
IValue if_else(Operands x) { return as_bool(x[0]) ? x[1] : x[2]; }
IValue largest(Operands x) { return as_bool(less(x)) ? x[1] : x[0]; }
IValue smallest(Operands x) { return as_bool(greater(x)) ? x[1] : x[0]; }
IValue to_float(Operands x) { return as_double(x[0]); }
IValue floor_of(Operands x) { return is_integral(x[0]) ? as_int(x[0]) : to_int(std::floor(as_double(x[0]))); }
IValue ceil_of(Operands x) { return is_integral(x[0]) ? as_int(x[0]) : to_int(std::ceil(as_double(x[0]))); }
IValue trunc_of(Operands x) { return is_integral(x[0]) ? as_int(x[0]) : to_int(as_double(x[0])); }

const at::Tensor& tensor_of(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) refuse("a tensor is expected, found a value of type " + value.tagKind());
  return value.toTensor();
}
IValue size_of(Operands x) { return tensor_of(x[0]).size(as_int(x[1])); }
IValue stride_of(Operands x) { return tensor_of(x[0]).stride(as_int(x[1])); }
IValue numel_of(Operands x) { return tensor_of(x[0]).numel(); }
IValue require(Operands x) {
  if (!as_bool(x[0]))
    refuse("the model's check failed" + (x.size() > 1 && x[1].isString() ? ": " + x[1].toStringRef() : std::string()));
  return {};
}

}  // namespace

PythonRow python_operator(const std::string& name) {
  static const auto& rows = *new std::unordered_map<std::string, PythonRow>{
      // never destroyed
      {"py.add", {add, 2, 2}},          {"py.sub", {sub, 2, 2}},        {"py.mul", {mul, 2, 2}},
      {"py.truediv", {truediv, 2, 2}},  {"py.mod", {mod, 2, 2}},        {"py.floordiv", {floordiv, 2, 2}},
      {"py.pow", {power, 2, 2}},        {"py.neg", {neg, 1, 1}},        {"py.sum", {sum, 1, 1}},
      {"py.eq", {equal, 2, 2}},         {"py.ne", {not_equal, 2, 2}},   {"py.lt", {less, 2, 2}},
      {"py.le", {less_equal, 2, 2}},    {"py.gt", {greater, 2, 2}},     {"py.ge", {greater_equal, 2, 2}},
      {"py.and", {logical_and, 2, 2}},  {"py.or", {logical_or, 2, 2}},  {"py.not", {logical_not, 1, 1}},
      {"py.if_else", {if_else, 3, 3}},  {"py.max", {largest, 2, 2}},    {"py.min", {smallest, 2, 2}},
      {"py.float", {to_float, 1, 1}},   {"py.floor", {floor_of, 1, 1}}, {"py.ceil", {ceil_of, 1, 1}},
      {"py.trunc", {trunc_of, 1, 1}},   {"py.int", {trunc_of, 1, 1}},   {"py.size", {size_of, 2, 2}},
      {"py.stride", {stride_of, 2, 2}}, {"py.numel", {numel_of, 1, 1}}, {"py.assert", {require, 1, 2}},
  };
  const auto found = rows.find(name);
  return found == rows.end() ? PythonRow{} : found->second;
}

IValue element_of(const IValue& sequence, int64_t index) {
  const auto place = [&](size_t size) {
    const int64_t count = static_cast<int64_t>(size), at = index < 0 ? index + count : index;
    if (at < 0 || at >= count) refuse("element " + std::to_string(index) + " of " + std::to_string(count));
    return static_cast<size_t>(at);
  };
  if (sequence.isTensorList()) {
    const auto list = sequence.toTensorList();
    return list.get(place(list.size()));
  }
  if (sequence.isIntList()) {
    const auto list = sequence.toIntList();
    return list.get(place(list.size()));
  }
  if (sequence.isTuple()) {
    const auto& elements = sequence.toTupleRef().elements();
    return elements[place(elements.size())];
  }
  if (sequence.isList()) {
    const auto elements = sequence.toListRef();
    return elements[place(elements.size())];
  }
  refuse("a list is expected, found a value of type " + sequence.tagKind());
}

}  // namespace gannet::exported
