// Adafactor's second moment. For a matrix, it consists of the averages of its rows and of its
// columns. A vector is a single row, so its column averages are per element: the same formula
// leaves it unfactored.
//
//   R_i <- b R_i + (1-b) mean over columns of (g^2 + eps);  C_j likewise over rows;  v_ij = R_i C_j / mean(R)
#pragma once

#include <gannet/abi.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optimizers/adafactor/rows.h"

namespace gannet::rules {

// Returns the new average of a row or a column; `sum` is over `count` elements.
inline float new_average(float before, double sum, uint64_t count, double beta) {
  return static_cast<float>(beta * before + (1 - beta) * (sum / static_cast<double>(count)));
}

// The factors that together divide a gradient by the root of its second moment: a row factor times
// a column factor.
class InverseRoots {
 public:
  // `rows` and `columns` are the tensor's averages before this step; the sums are those of this
  // step.
  InverseRoots(const gannet_segment& part, const float* rows, const float* columns, const double* row_sums,
               const double* column_sums, double beta)
      : part_(part), all_(part), first_column_(all_.first_matrix() * part.columns) {
    of_rows_.resize(all_.count());
    of_columns_.resize(all_.matrix_count() * part.columns);
    for (uint64_t c = 0; c < of_columns_.size(); ++c) {
      const uint64_t column = first_column_ + c;
      of_columns_[c] = 1 / std::sqrt(new_average(columns[column], column_sums[column], part.matrix_rows, beta));
    }
    for (uint64_t m = 0; m < all_.matrix_count(); ++m) {
      const uint64_t matrix = all_.first_matrix() + m, begin = matrix * part.matrix_rows;
      double total = 0;
      for (uint64_t r = begin; r < begin + part.matrix_rows; ++r) total += new_average(rows[r], row_sums[r], part.columns, beta);
      const auto mean = static_cast<float>(total / static_cast<double>(part.matrix_rows));
      for (uint64_t r = std::max(begin, all_.first()); r < std::min(begin + part.matrix_rows, all_.first() + all_.count()); ++r)
        of_rows_[r - all_.first()] = 1 / std::sqrt(new_average(rows[r], row_sums[r], part.columns, beta) / mean);
    }
  }

  const RowRanges& rows() const { return all_; }
  float of_row(const RowRange& row) const { return of_rows_[row.number - all_.first()]; }
  // All the factors: [rows] and [matrices][columns], beginning with the first row and the first
  // matrix of the part.
  const std::vector<float>& of_rows() const { return of_rows_; }
  const std::vector<float>& of_columns() const { return of_columns_; }
  // The factors of the columns that the row range covers.
  const float* of_columns(const RowRange& row) const {
    return of_columns_.data() + row.matrix * part_.columns - first_column_ + row.column;
  }

 private:
  const gannet_segment& part_;
  RowRanges all_;
  uint64_t first_column_;
  std::vector<float> of_rows_, of_columns_;
};

}  // namespace gannet::rules
