// A part of a tensor, row by row: the elements that lie in it, as numbers.
#pragma once

#include <gannet/abi.h>

#include <algorithm>
#include <cstdint>
#include <gannet/sdk_float16.hpp>

namespace gannet::rules {

// Elements of one row: [begin, end) of the range that args describes, the first of which is in column `column` of the tensor's
// matrix number `matrix`.
struct Row {
  uint64_t number;  // in the tensor
  uint64_t matrix, column;
  uint64_t begin, end;
};

class Rows {
 public:
  explicit Rows(const gannet_segment& part)
      : part_(part),
        first_(part.tensor_offset / part.columns),
        last_(part.numel == 0 ? first_ : (part.tensor_offset + part.numel - 1) / part.columns + 1) {}
  uint64_t first() const { return first_; }
  uint64_t count() const { return last_ - first_; }
  uint64_t first_matrix() const { return first_ / part_.matrix_rows; }
  uint64_t matrix_count() const { return count() == 0 ? 0 : (last_ - 1) / part_.matrix_rows + 1 - first_matrix(); }

  // The i-th, from 0.
  Row operator[](uint64_t i) const {
    const uint64_t number = first_ + i, in_tensor = number * part_.columns;
    const uint64_t begin = std::max(in_tensor, part_.tensor_offset),
                   end = std::min(in_tensor + part_.columns, part_.tensor_offset + part_.numel);
    return {number, number / part_.matrix_rows, begin - in_tensor, part_.offset + begin - part_.tensor_offset,
            part_.offset + end - part_.tensor_offset};
  }

 private:
  const gannet_segment& part_;
  uint64_t first_, last_;
};

// body(i -> gradient) with the gradient's type resolved.
template <class Body>
void with_gradient(const gannet_update_args& args, Body&& body) {
  const float scale = static_cast<float>(args.grad_scale);
  const auto of = [scale](const auto* grad) { return [=](uint64_t i) { return static_cast<float>(grad[i]) * scale; }; };
  if (args.grad_dtype == GANNET_BFLOAT16) return body(of(static_cast<const sdk::BFloat16*>(args.grad)));
  if (args.grad_dtype == GANNET_FLOAT16) return body(of(static_cast<const sdk::Float16*>(args.grad)));
  body(of(static_cast<const float*>(args.grad)));
}

// The sum of value(i) over [begin, end) in double. Term i goes to one of eight partial sums by its place in the row, so that a
// compiler may add several at once.
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
