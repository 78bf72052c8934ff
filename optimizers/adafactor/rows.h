// A part of a tensor, row by row: the index ranges of its elements.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <gannet/sdk_float16.hpp>

#include "optimizers/device/both.h"

namespace gannet::rules {

// The elements [begin, end) of the range in args, all of them in one row. The first one is in
// column `column` of the tensor's matrix number `matrix`.
struct RowRange {
  uint64_t number;  // number of the row in the tensor
  uint64_t matrix, column;
  uint64_t begin, end;
};

class RowRanges {
 public:
  explicit RowRanges(const gannet_segment& part)
      : offset_(part.offset),
        tensor_offset_(part.tensor_offset),
        numel_(part.numel),
        columns_(part.columns),
        matrix_rows_(part.matrix_rows),
        first_(part.tensor_offset / part.columns),
        last_(part.numel == 0 ? first_ : (part.tensor_offset + part.numel - 1) / part.columns + 1) {}
  GANNET_BOTH uint64_t first() const { return first_; }
  GANNET_BOTH uint64_t count() const { return last_ - first_; }
  GANNET_BOTH uint64_t columns() const { return columns_; }          // of a matrix
  GANNET_BOTH uint64_t matrix_rows() const { return matrix_rows_; }  // of a matrix
  GANNET_BOTH uint64_t first_matrix() const { return first_ / matrix_rows_; }
  GANNET_BOTH uint64_t matrix_count() const { return count() == 0 ? 0 : (last_ - 1) / matrix_rows_ + 1 - first_matrix(); }

  // The i-th row of the part, counted from 0.
  GANNET_BOTH RowRange operator[](uint64_t i) const {
    const uint64_t number = first_ + i, in_tensor = number * columns_;
    const uint64_t begin = in_tensor > tensor_offset_ ? in_tensor : tensor_offset_, row_end = in_tensor + columns_,
                   part_end = tensor_offset_ + numel_;
    const uint64_t end = row_end < part_end ? row_end : part_end;
    return {number, number / matrix_rows_, begin - in_tensor, offset_ + begin - tensor_offset_, offset_ + end - tensor_offset_};
  }
  // Whether an element of the tensor is in the part, and if so, its index in the range.
  GANNET_BOTH bool has(uint64_t element) const { return element >= tensor_offset_ && element < tensor_offset_ + numel_; }
  GANNET_BOTH uint64_t place(uint64_t element) const { return offset_ + element - tensor_offset_; }

 private:
  uint64_t offset_, tensor_offset_, numel_, columns_, matrix_rows_;
  uint64_t first_, last_;
};

// Calls body with a function that returns the gradient of element i, with the gradient's type
// resolved.
template <class Body>
void with_gradient(const gannet_update_args& args, Body&& body) {
  const float scale = static_cast<float>(args.grad_scale);
  const auto of = [scale](const auto* grad) { return [=](uint64_t i) { return static_cast<float>(grad[i]) * scale; }; };
  if (args.grad_dtype == GANNET_BFLOAT16) return body(of(static_cast<const sdk::BFloat16*>(args.grad)));
  if (args.grad_dtype == GANNET_FLOAT16) return body(of(static_cast<const sdk::Float16*>(args.grad)));
  body(of(static_cast<const float*>(args.grad)));
}

// Returns the sum of value(i) over [begin, end), in double. The terms are distributed over eight
// partial sums by their position, so that a compiler may add several at once.
template <class Value>
double sum_over(uint64_t begin, uint64_t end, Value&& value) {
  constexpr uint64_t kPartial = 8;
  double partial[kPartial] = {};
  uint64_t i = begin;
  for (; i + kPartial <= end; i += kPartial)
    for (uint64_t k = 0; k < kPartial; ++k) partial[k] += value(i + k);
  for (uint64_t k = 0; i < end; ++i, ++k) partial[k] += value(i);
  double sum = 0;
  for (const double part : partial) sum += part;
  return sum;
}

}  // namespace gannet::rules
