// A sound rule that reads every field of a call: sums of each scope but the model's, states of each extent, random numbers, a
// workspace. Each plugin of fields.cpp misreads one field.
#pragma once

#include <algorithm>
#include <cmath>
#include <gannet/sdk_float16.hpp>
#include <gannet/sdk_random.hpp>
#include <map>

#include "rule.h"

namespace bad {

struct Full : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {at_least(learning_rate("0.01"), 0),
                                                  at_least(dynamic_number("damping", "0.5", "of rows"), 0)};
  using OptimizerBase::OptimizerBase;
  enum States { kMomentum, kNorms, kTotal, kRows, kColumns };
  enum Sums { kSquares, kOfRows, kOfColumns, kLargest, kCount };

  uint64_t capabilities() const {
    return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED | GANNET_OPTIMIZER_USES_WORKSPACE;
  }
  bool supports(uint32_t p, uint32_t g, uint32_t out) const {
    return (p == GANNET_FLOAT32 || p == GANNET_FLOAT64) && (g == p || g == GANNET_BFLOAT16) &&
           (out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16 || out == GANNET_FLOAT16);
  }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("norms", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64),
            state("total", GANNET_STATE_SCALAR, GANNET_FLOAT64), state("rows", GANNET_STATE_PER_ROW, GANNET_FLOAT64),
            state("columns", GANNET_STATE_PER_COLUMN, GANNET_FLOAT64)};
  }
  std::vector<gannet_sum_spec> wanted_sums() const {
    return {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_ROW), sum(GANNET_SUM_OF_COLUMN),
            sum(GANNET_SUM_OF_GROUP, GANNET_MAX, 1)};
  }
  uint64_t workspace_bytes() const { return 64; }
  uint64_t workspace_bytes_per_element() const { return sizeof(double); }

  static double grad_at(const gannet_update_args& a, uint64_t i) {
    return a.grad_dtype == GANNET_BFLOAT16  ? double(float(static_cast<const BFloat16*>(a.grad)[i]))
           : a.grad_dtype == GANNET_FLOAT64 ? static_cast<const double*>(a.grad)[i]
                                            : double(static_cast<const float*>(a.grad)[i]);
  }
  static uint64_t row_of(const gannet_segment& part, uint64_t i) {
    return part.first_row + (part.tensor_offset + i - part.offset) / part.columns;
  }
  static uint64_t column_of(const gannet_segment& part, uint64_t i) {
    const uint64_t e = part.tensor_offset + i - part.offset, matrix = part.matrix_rows * part.columns;
    return part.first_column + e / matrix * part.columns + e % part.columns;
  }

  void sums(const gannet_update_args& a, uint32_t round, double* sums) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      double* const own = sums + s * a.sum_count;
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        const double g = grad_at(a, i) * a.grad_scale;
        if (round == 0) {
          own[kSquares] += g * g;
          a.lines[kOfRows][row_of(part, i)] += g * g;
          a.lines[kOfColumns][column_of(part, i)] += g * g;
        } else {
          own[kLargest] = std::max(own[kLargest], std::fabs(g) / (1 + std::sqrt(a.sums[s * a.sum_count + kSquares])));
        }
      }
    }
  }
  void begin_step(const gannet_step_args& a) {
    auto* const total = static_cast<double*>(a.states[kTotal]);
    *total = 0.5 * *total + a.hyper[1] / static_cast<double>(a.step) + 1e-3 * static_cast<double>(a.seed % 97);
    *static_cast<char*>(a.workspace) = 1;
  }
  void end_step(const gannet_step_args& a) {
    for (uint64_t t = 0; t < a.tensor_count; ++t) {
      const gannet_tensor& of = tensor(a, t);
      static_cast<double*>(a.states[kNorms])[of.index] =
          std::sqrt(a.sums[of.index * a.sum_count + kSquares] / static_cast<double>(of.numel));
      const uint64_t rows = of.numel / of.columns, columns = of.numel / of.matrix_rows;
      for (uint64_t r = of.first_row; r < of.first_row + rows; ++r)
        static_cast<double*>(a.states[kRows])[r] = 0.9 * static_cast<double*>(a.states[kRows])[r] + 0.1 * a.lines[kOfRows][r];
      for (uint64_t c = of.first_column; c < of.first_column + columns; ++c)
        static_cast<double*>(a.states[kColumns])[c] =
            0.9 * static_cast<double*>(a.states[kColumns])[c] + 0.1 * a.lines[kOfColumns][c];
    }
    *static_cast<double*>(a.states[kTotal]) += a.sums[kLargest] * a.hyper[0];
    *static_cast<char*>(a.workspace) = 2;
  }
  template <class T>
  void update_as(const gannet_update_args& a) {
    auto *const param = static_cast<T*>(a.param), *const momentum = static_cast<T*>(a.states[kMomentum]);
    auto* const fresh = static_cast<double*>(a.workspace);
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      const ElementRandom noise(a, part);
      const double* const own = a.sums + s * a.sum_count;
      const double shared = 1 + std::sqrt(own[kSquares] / static_cast<double>(part.tensor_numel)) + own[kLargest] +
                            static_cast<double*>(a.states[kNorms])[part.tensor_index] +
                            0.01 * *static_cast<double*>(a.states[kTotal]);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        const uint64_t row = row_of(part, i), column = column_of(part, i);
        const double lines = std::sqrt(a.lines[kOfRows][row]) + std::sqrt(a.lines[kOfColumns][column]) +
                             std::sqrt(static_cast<double*>(a.states[kRows])[row]) +
                             std::sqrt(static_cast<double*>(a.states[kColumns])[column]);
        momentum[i] = static_cast<T>(0.9 * double(momentum[i]) + grad_at(a, i) * a.grad_scale);
        const double rate = a.hyper[0] / (shared + a.hyper[1] * lines) / std::sqrt(std::sqrt(static_cast<double>(a.step)));
        fresh[i] = double(param[i]) - rate * double(momentum[i]) * (0.9 + 0.2 * noise.uniform(i));
      }
    }
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        param[i] = static_cast<T>(fresh[i]);
        if (a.out_dtype == GANNET_BFLOAT16) static_cast<BFloat16*>(a.out)[i] = BFloat16(static_cast<float>(param[i]));
        if (a.out_dtype == GANNET_FLOAT16) static_cast<Float16*>(a.out)[i] = Float16(static_cast<float>(param[i]));
      }
    }
  }
  void update(const gannet_update_args& a) {
    if (a.param_dtype == GANNET_FLOAT64) return update_as<double>(a);
    update_as<float>(a);
  }

  // The value of a field in the object's first call.
  template <class T>
  T first(const char* field, T value) {
    std::vector<char>& kept = first_[field];
    if (kept.empty()) kept.assign(reinterpret_cast<const char*>(&value), reinterpret_cast<const char*>(&value + 1));
    std::memcpy(&value, kept.data(), sizeof(T));
    return value;
  }
  std::map<std::string, std::vector<char>> first_;
};

template <class T>
volatile T& writable(const T& value) {  // volatile: the same value is written, too
  return const_cast<volatile T&>(value);
}

// Segments that may be changed, in place of a call's own.
struct OwnSegments {
  explicit OwnSegments(gannet_update_args& a) {
    for (uint64_t s = 0; s < a.segment_count; ++s) all.push_back(segment(a, s));
    a.segments = all.data();
    a.segment_stride = sizeof(gannet_segment);
  }
  std::vector<gannet_segment> all;
};
struct OwnTensors {
  explicit OwnTensors(gannet_step_args& a) {
    for (uint64_t t = 0; t < a.tensor_count; ++t) all.push_back(tensor(a, t));
    a.tensors = all.data();
    a.tensor_stride = sizeof(gannet_tensor);
  }
  std::vector<gannet_tensor> all;
};

}  // namespace bad
