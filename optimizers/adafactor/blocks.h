// Divides a part of a tensor into thread blocks, along its rows and along its columns. The cuts are
// at fixed positions in the full tensor, so that a block has the same elements whatever else is in
// the range.
#pragma once

#include <cstdint>

#include "optimizers/adafactor/rows.h"

namespace gannet::rules {

// Blocks that cover at most kColumns elements of one row each.
class RowBlocks {
 public:
  static constexpr uint64_t kColumns = 4096;
  explicit RowBlocks(const gannet_segment& part) : rows_(part), per_row_((part.columns + kColumns - 1) / kColumns) {}
  GANNET_BOTH const RowRanges& rows() const { return rows_; }
  GANNET_BOTH uint64_t per_row() const { return per_row_; }
  GANNET_BOTH uint64_t count() const { return rows_.count() * per_row_; }
  GANNET_BOTH uint64_t row_of(uint64_t block) const { return block / per_row_; }

  // Returns the part of the row that is in the block. It is empty if the tensor part has only other
  // columns of the row.
  GANNET_BOTH RowRange operator[](uint64_t block) const {
    RowRange row = rows_[row_of(block)];
    const uint64_t from = block % per_row_ * kColumns, to = from + kColumns, behind = row.column + row.end - row.begin;
    const uint64_t first = from > row.column ? from : row.column, last = to < behind ? to : behind;
    row.begin += first - row.column;
    row.end = first < last ? row.begin + last - first : row.begin;
    row.column = first;
    return row;
  }

 private:
  RowRanges rows_;
  uint64_t per_row_;
};

// Blocks that cover at most kColumns columns and kRows rows of a matrix each. The column sums of
// the blocks are [matrices][blocks of rows][columns].
class ColumnBlocks {
 public:
  static constexpr uint64_t kColumns = 32, kRows = 256;
  explicit ColumnBlocks(const gannet_segment& part)
      : rows_(part), across_((part.columns + kColumns - 1) / kColumns), down_((part.matrix_rows + kRows - 1) / kRows) {}
  GANNET_BOTH const RowRanges& rows() const { return rows_; }
  GANNET_BOTH uint64_t down() const { return down_; }
  GANNET_BOTH uint64_t count() const { return rows_.matrix_count() * down_ * across_; }
  GANNET_BOTH uint64_t totals() const { return rows_.matrix_count() * rows_.columns(); }
  GANNET_BOTH uint64_t sums() const { return totals() * down_; }

  struct Block {
    uint64_t first_column, end_column;  // columns of a matrix
    uint64_t first_row, end_row;        // rows of the tensor; the part may contain them only partly
    uint64_t sums;                      // index of the sum of the block's first column
  };
  GANNET_BOTH Block operator[](uint64_t block) const {
    const uint64_t strip = block % across_, chunk = block / across_ % down_, matrix = block / across_ / down_;
    const uint64_t first_column = strip * kColumns, end_column = first_column + kColumns;
    const uint64_t first_row = chunk * kRows, end_row = first_row + kRows;
    const uint64_t row = (rows_.first_matrix() + matrix) * rows_.matrix_rows();
    return {first_column, end_column < rows_.columns() ? end_column : rows_.columns(), row + first_row,
            row + (end_row < rows_.matrix_rows() ? end_row : rows_.matrix_rows()),
            (matrix * down_ + chunk) * rows_.columns() + first_column};
  }
  // first_sum() is the index of the first block's sum for column `total`, in [0, totals());
  // next_sum() is the distance to the sum of the next block.
  GANNET_BOTH uint64_t first_sum(uint64_t total) const {
    return total / rows_.columns() * down_ * rows_.columns() + total % rows_.columns();
  }
  GANNET_BOTH uint64_t next_sum() const { return rows_.columns(); }

 private:
  RowRanges rows_;
  uint64_t across_, down_;
};

}  // namespace gannet::rules
