// Matrix products in fp32, with packed cache blocks and SIMD.
//
//   Multiplier multiply(host);
//   multiply({.rows = n, .columns = m, .depth = n, .a = row_major(q, n), .b = row_major(x, m), .c = y});      // y = q x
//
// Each element is a sum over the depth in a fixed order, in blocks of a fixed size. The result does not
// depend on the number of threads, nor on the SIMD width if the target has fused multiply-add.
#pragma once

#include <gannet/sdk.hpp>
#include <vector>

#include "optimizers/muon/scratch.h"

namespace gannet::rules {

// Sums along the depth are split into partial sums of this many terms.
inline constexpr uint64_t kProductDepth = 256;

// Element (i, j) is data[i * row_stride + j * column_stride].
struct Operand {
  const float* data;
  uint64_t row_stride, column_stride;
};
inline Operand row_major(const float* data, uint64_t columns) { return {data, columns, 1}; }
inline Operand transposed(const float* data, uint64_t columns) { return {data, 1, columns}; }  // of a row-major matrix

// The product c = alpha a b + beta d.
struct Product {
  uint64_t rows, columns, depth;
  Operand a, b;  // shapes [rows, depth] and [depth, columns]
  float* c;      // [rows, columns] row-major; must not be a or b
  float alpha = 1, beta = 0;
  const float* d = nullptr;  // [rows, columns] row-major, may be c; null if there is no second term
  // Whether a b and d are symmetric; then only the lower half is computed, and copied to the upper
  // half.
  bool is_symmetric = false;
};

class Multiplier {
 public:
  explicit Multiplier(const sdk::HostServices& host) : host_(host) {}
  void operator()(const Product& product);

  // A block of rows by a strip of columns of c, which is a thread's unit of work.
  struct Task {
    uint64_t row, column;
  };

 private:
  sdk::HostServices host_;
  Scratch packed_;  // a block of b, in panels of the tile's width
  std::vector<Task> tasks_;
};

}  // namespace gannet::rules
