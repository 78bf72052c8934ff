// Python's operators on sizes and on numbers derived from them, with Python's results.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace gannet::exported {

// Throws Error(kArgument) for a division by zero, a result beyond 64 bits, or operands of another type.
using PythonOperator = c10::IValue (*)(std::span<const c10::IValue> operands);

struct PythonRow {
  PythonOperator call = nullptr;  // null: there is no such operator
  size_t fewest = 0, most = 0;    // operands
};

// `name`: "py.add".
PythonRow python_operator(const std::string& name);

// Python's sequence[index] for a list or a tuple; a negative index counts from the end.
c10::IValue element_of(const c10::IValue& sequence, int64_t index);

}  // namespace gannet::exported
