// How kernels of devices cut tensors into thread blocks: every element is in exactly one of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "optimizers/adafactor/blocks.h"
#include "optimizers/device/part.h"
#include "optimizers/muon/product_kernel.h"

namespace gannet::test {
namespace {

using ::testing::Each;

gannet_segment segment(uint64_t offset, uint64_t tensor_offset, uint64_t numel, uint64_t columns = 1, uint64_t matrix_rows = 1) {
  gannet_segment part{};
  part.offset = offset;
  part.tensor_offset = tensor_offset;
  part.numel = numel;
  part.columns = columns;
  part.matrix_rows = matrix_rows;
  return part;
}

TEST(TensorBlocks, CoverAPartOnceAndBeginAtMultiplesOfTheTensor) {
  constexpr uint64_t kBlock = rules::TensorBlocks::kBlockNumel;
  for (const uint64_t tensor_offset : {uint64_t{0}, uint64_t{1}, kBlock - 1, kBlock, kBlock + 1, 5 * kBlock + 77})
    for (const uint64_t numel : {uint64_t{0}, uint64_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 3 * kBlock + 5})
      for (const uint64_t offset : {uint64_t{0}, uint64_t{123}}) {
        const rules::TensorBlocks blocks(segment(offset, tensor_offset, numel));
        uint64_t next = offset;
        for (uint64_t b = 0; b < blocks.count(); ++b) {
          ASSERT_EQ(blocks.begin(b), next);
          if (b > 0) ASSERT_EQ((next - offset + tensor_offset) % kBlock, 0u);
          next = blocks.end(b);
          ASSERT_LT(blocks.begin(b), next);
          ASSERT_LE(next - blocks.begin(b), kBlock);
        }
        ASSERT_EQ(next, offset + numel) << tensor_offset << " " << numel;
      }
}

struct Cut {
  uint64_t matrices, rows, columns, first, last;  // of a stack of matrices, the elements [first, last)
};
std::vector<Cut> cuts() {
  std::vector<Cut> all;
  for (const auto& [matrices, rows, columns] :
       {std::array<uint64_t, 3>{1, 1, 9000}, {1, 600, 3}, {3, 17, 5}, {1, 9000, 1}, {2, 300, 70}, {1, 1, 1}, {1, 2, 4097}}) {
    const uint64_t numel = matrices * rows * columns;
    for (const uint64_t first : {uint64_t{0}, uint64_t{1}, numel / 3, numel - 1})
      for (const uint64_t last : {first + 1, first + 2, numel * 2 / 3, numel - 1, numel})
        if (first < last && last <= numel) all.push_back({matrices, rows, columns, first, last});
  }
  return all;
}

TEST(RowBlocks, CoverAPartOnceEachInItsRow) {
  for (const Cut& cut : cuts()) {
    const rules::RowBlocks blocks(segment(50, cut.first, cut.last - cut.first, cut.columns, cut.rows));
    std::vector<int> seen(cut.last - cut.first);
    for (uint64_t b = 0; b < blocks.count(); ++b) {
      const rules::RowRange row = blocks[b];
      ASSERT_LE(row.end - row.begin, rules::RowBlocks::kColumns);
      for (uint64_t i = row.begin; i < row.end; ++i) {
        const uint64_t element = i - 50 + cut.first;
        ASSERT_EQ(element / cut.columns, row.number);
        ASSERT_EQ(element % cut.columns, row.column + i - row.begin);
        ASSERT_EQ(element / (cut.rows * cut.columns), row.matrix);
        ASSERT_EQ(row.number, blocks.rows().first() + blocks.row_of(b));
        ++seen.at(i - 50);
      }
    }
    EXPECT_THAT(seen, Each(1)) << cut.rows << " by " << cut.columns << " from " << cut.first << " to " << cut.last;
  }
}

TEST(ColumnBlocks, CoverAPartOnceAndTheirSumsAreThoseOfItsColumns) {
  for (const Cut& cut : cuts()) {
    const rules::ColumnBlocks blocks(segment(50, cut.first, cut.last - cut.first, cut.columns, cut.rows));
    const uint64_t first_matrix = cut.first / (cut.rows * cut.columns);
    std::vector<int> seen(cut.last - cut.first), written(blocks.sums());
    std::vector<std::set<uint64_t>> column_of(blocks.sums());
    for (uint64_t b = 0; b < blocks.count(); ++b) {
      const auto block = blocks[b];
      for (uint64_t column = block.first_column; column < block.end_column; ++column) {
        const uint64_t at = block.sums + column - block.first_column;
        ++written.at(at);
        for (uint64_t row = block.first_row; row < block.end_row; ++row) {
          const uint64_t element = row * cut.columns + column;
          column_of.at(at).insert((row / cut.rows - first_matrix) * cut.columns + column);
          if (!blocks.rows().has(element)) continue;
          ASSERT_EQ(blocks.rows().place(element), element - cut.first + 50);
          ++seen.at(element - cut.first);
        }
      }
    }
    EXPECT_THAT(seen, Each(1)) << cut.rows << " by " << cut.columns << " from " << cut.first << " to " << cut.last;
    EXPECT_THAT(written, Each(1));
    std::vector<int> added(blocks.sums());
    for (uint64_t total = 0; total < blocks.totals(); ++total)
      for (uint64_t k = 0; k < blocks.down(); ++k) {
        const uint64_t at = blocks.first_sum(total) + k * blocks.next_sum();
        ++added.at(at);
        ASSERT_EQ(column_of.at(at), std::set<uint64_t>{total});
      }
    EXPECT_THAT(added, Each(1));
  }
}

TEST(ProductKernel, AThreadsLinesAreItsOwn) {
  using Kernel = rules::device::ProductKernel;
  std::vector<int> seen(Kernel::kTile);
  for (unsigned group = 0; group < 8; ++group)
    for (unsigned i = 0; i < Kernel::kEach; ++i) {
      ++seen.at(Kernel::line_of(group, i));
      EXPECT_EQ(Kernel::pack_of(group, i), Kernel::line_of(group, i) / 4);
    }
  EXPECT_THAT(seen, Each(1));
  EXPECT_EQ(Kernel::tiles(1), 1u);
  EXPECT_EQ(Kernel::tiles(64), 1u);
  EXPECT_EQ(Kernel::tiles(65), 2u);
}

TEST(UpdatePart, PointsToTheElementsOfThePart) {
  float param[10], first[10], second[10];
  uint16_t grad[10], out[10];
  void* states[] = {first, second, nullptr};
  gannet_update_args all{};
  all.param_dtype = GANNET_FLOAT32;
  all.grad_dtype = GANNET_BFLOAT16;
  all.out_dtype = GANNET_FLOAT16;
  all.numel = 10;
  all.param = param;
  all.grad = grad;
  all.out = out;
  all.states = states;
  all.state_count = 3;
  const rules::UpdatePart<2> part(all, 3, 4);
  EXPECT_EQ(part.args.param, param + 3);
  EXPECT_EQ(part.args.grad, grad + 3);
  EXPECT_EQ(part.args.out, out + 3);
  EXPECT_EQ(part.args.states[0], first + 3);
  EXPECT_EQ(part.args.states[1], second + 3);
  EXPECT_EQ(part.args.state_count, 2u);
  EXPECT_EQ(part.args.numel, 4u);
  all.out = nullptr;
  all.out_dtype = GANNET_DTYPE_NONE;
  EXPECT_EQ((rules::UpdatePart<1>(all, 3, 4).args.out), nullptr);
}

}  // namespace
}  // namespace gannet::test
