// The rows and columns of a tensor as optimizers count them: the tensor is a stack of matrices, and
// its rows and columns are numbered after those of the group's earlier tensors (gannet/abi.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gannet {

struct TensorLines {
  uint64_t columns = 1, matrix_rows = 1;     // counts per matrix
  uint64_t first_row = 0, first_column = 0;  // indices of the tensor's first row and column in the group
  uint64_t row_count = 0, column_count = 0;  // totals of the tensor

  // The rows and columns of the tensor that follows `before`.
  static TensorLines of(const std::vector<int64_t>& shape, uint64_t numel, const TensorLines& before) {
    const auto from_the_end = [&](size_t place) {
      return shape.size() < place ? uint64_t{1} : static_cast<uint64_t>(std::max<int64_t>(shape[shape.size() - place], 1));
    };
    TensorLines lines;
    lines.columns = from_the_end(1);
    lines.matrix_rows = from_the_end(2);
    lines.first_row = before.first_row + before.row_count;
    lines.first_column = before.first_column + before.column_count;
    lines.row_count = numel / lines.columns;
    lines.column_count = numel / lines.matrix_rows;
    return lines;
  }

  // Copies the members into a gannet_tensor or a gannet_segment.
  template <class T>
  void write_to(T& view) const {
    view.columns = columns;
    view.matrix_rows = matrix_rows;
    view.first_row = first_row;
    view.first_column = first_column;
  }
};

}  // namespace gannet
