#include "optimizers/muon/product.h"

// Highway prescribes the order of these lines.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE __BASE_FILE__
#include <hwy/foreach_target.h>

#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace gannet::rules::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The innermost loop accumulates a tile of kTileRows x kTileColumns in registers. The tile takes 24
// of 32 vector registers, or 12 of 16.
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr uint64_t kLanes = hn::MaxLanes(D());
constexpr uint64_t kTileColumns = 2 * kLanes;
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr uint64_t kTileRows = 12;
#else
constexpr uint64_t kTileRows = 6;
#endif
// The block sizes. kDepth lets a panel of b (at most 32 KiB) stay in the first-level cache, kRows lets
// a block of a (96 KiB) stay in the second-level cache, and kColumns lets a block of b (4 MiB) stay in
// the last-level cache.
constexpr uint64_t kDepth = kProductDepth, kRows = 96, kStrip = 512, kColumns = 4096;
static_assert(kRows % kTileRows == 0 && kStrip % kTileColumns == 0 && kColumns % kStrip == 0);

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Packs `width` rows or columns of an operand as [depth][kWidth], padded with zeros. `step` is the
// distance between two of them.
template <uint64_t kWidth>
void pack_panel(const float* from, uint64_t step, uint64_t width, uint64_t depth_step, uint64_t depth, float* to) {
  for (uint64_t k = 0; k < depth; ++k, to += kWidth) {
    const float* line = from + k * depth_step;
    if (width == kWidth && step == 1) {
      std::memcpy(to, line, sizeof(float) * kWidth);
      continue;
    }
    for (uint64_t i = 0; i < width; ++i) to[i] = line[i * step];
    for (uint64_t i = width; i < kWidth; ++i) to[i] = 0;
  }
}

// For operands whose rows (or columns) are contiguous along the depth: reads along the depth,
// kWidth rows (or columns) at a time.
template <uint64_t kWidth>
void pack_along_depth(const float* from, uint64_t step, uint64_t width, uint64_t depth, float* to) {
  for (uint64_t i = 0; i < kWidth; ++i) {
    const float* line = from + i * step;
    for (uint64_t k = 0; k < depth; ++k) to[k * kWidth + i] = i < width ? line[k] : 0;
  }
}

template <uint64_t kWidth>
void pack(const float* from, uint64_t step, uint64_t width, uint64_t depth_step, uint64_t depth, float* to) {
  if (depth_step == 1 && step != 1) return pack_along_depth<kWidth>(from, step, width, depth, to);
  pack_panel<kWidth>(from, step, width, depth_step, depth, to);
}

// Defines how a tile is added to c, in the first block of the depth and in the others.
struct TileFinish {
  float alpha, beta;
  const float* base;  // d or c; null if nothing is added
  bool scales_base;   // whether base is d, which is scaled by beta
  uint64_t stride;    // row stride of base and of c
};

HWY_INLINE void finish_row(const TileFinish& finish, V first, V second, const float* base, float* to) {
  const D d;
  const V alpha = hn::Set(d, finish.alpha);
  if (!base) {
    hn::StoreU(hn::Mul(alpha, first), d, to);
    hn::StoreU(hn::Mul(alpha, second), d, to + kLanes);
    return;
  }
  V left = hn::LoadU(d, base), right = hn::LoadU(d, base + kLanes);
  if (finish.scales_base) {
    left = hn::Mul(hn::Set(d, finish.beta), left);
    right = hn::Mul(hn::Set(d, finish.beta), right);
  }
  hn::StoreU(hn::MulAdd(alpha, first, left), d, to);
  hn::StoreU(hn::MulAdd(alpha, second, right), d, to + kLanes);
}

// Computes a tile from a [depth][kTileRows] and b [depth][kTileColumns]. `rows` and `columns` give
// the part of the tile that is inside c.
void tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, uint64_t depth, const TileFinish& finish, const float* base,
          float* c, uint64_t rows, uint64_t columns) {
  const D d;
  V sums[kTileRows][2];
#pragma GCC unroll 12
  for (uint64_t r = 0; r < kTileRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(d);
  for (uint64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns) {
    const V left = hn::LoadU(d, b), right = hn::LoadU(d, b + kLanes);
#pragma GCC unroll 12
    for (uint64_t r = 0; r < kTileRows; ++r) {
      const V factor = hn::Set(d, a[r]);
      sums[r][0] = hn::MulAdd(factor, left, sums[r][0]);
      sums[r][1] = hn::MulAdd(factor, right, sums[r][1]);
    }
  }
  if (rows == kTileRows && columns == kTileColumns) {
#pragma GCC unroll 12
    for (uint64_t r = 0; r < kTileRows; ++r)
      finish_row(finish, sums[r][0], sums[r][1], base ? base + r * finish.stride : nullptr, c + r * finish.stride);
    return;
  }
  // At the edges, the same instructions finish the tile in a buffer of full rows.
  float all[kTileRows][kTileColumns];
#pragma GCC unroll 12
  for (uint64_t r = 0; r < kTileRows; ++r) {
    hn::StoreU(sums[r][0], d, all[r]);
    hn::StoreU(sums[r][1], d, all[r] + kLanes);
  }
  for (uint64_t r = 0; r < rows; ++r) {
    float line[kTileColumns] = {};
    if (base) std::memcpy(line, base + r * finish.stride, columns * sizeof(float));
    finish_row(finish, hn::LoadU(d, all[r]), hn::LoadU(d, all[r] + kLanes), base ? line : nullptr, line);
    std::memcpy(c + r * finish.stride, line, columns * sizeof(float));
  }
}

// One block of the depth and of the columns. `packed` has the packed panels of b.
struct Block {
  const Product& product;
  uint64_t depth_begin, depth, column_begin;
  const float* packed;
  TileFinish finish;

  // Computes rows [row, row + kRows) by columns [column, column + kStrip) of the block. `a` has the
  // packed rows.
  void run(uint64_t row, uint64_t column, const float* a) const {
    const uint64_t row_end = std::min(row + kRows, product.rows), end = std::min(column + kStrip, product.columns);
    for (uint64_t j = column; j < end; j += kTileColumns) {
      const float* panel = packed + (j - column_begin) * depth;
      for (uint64_t i = row; i < row_end; i += kTileRows) {
        if (product.is_symmetric && j > i + kTileRows - 1) continue;  // above the diagonal
        const uint64_t at = i * product.columns + j;
        tile(a + (i - row) * depth, panel, depth, finish, finish.base ? finish.base + at : nullptr, product.c + at,
             std::min(kTileRows, row_end - i), std::min(kTileColumns, end - j));
      }
    }
  }
  void pack_rows(uint64_t row, float* to) const {
    const uint64_t end = std::min(row + kRows, product.rows);
    const Operand& a = product.a;
    for (uint64_t i = row; i < end; i += kTileRows)
      pack<kTileRows>(a.data + i * a.row_stride + depth_begin * a.column_stride, a.row_stride, std::min(kTileRows, end - i),
                      a.column_stride, depth, to + (i - row) * depth);
  }
};

// Copies the lower triangle to the upper one, in squares small enough for two to fit the
// first-level cache.
void mirror(float* c, uint64_t size, const sdk::HostServices& host) {
  constexpr uint64_t kSquare = 32;
  host.parallel_for((size + kSquare - 1) / kSquare, 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i0 = begin * kSquare; i0 < std::min(end * kSquare, size); i0 += kSquare)
      for (uint64_t j0 = i0; j0 < size; j0 += kSquare)
        for (uint64_t i = i0; i < std::min(i0 + kSquare, size); ++i)
          for (uint64_t j = std::max(j0, i + 1); j < std::min(j0 + kSquare, size); ++j) c[i * size + j] = c[j * size + i];
  });
}

void multiply(const Product& product, const sdk::HostServices& host, Scratch& memory, std::vector<Multiplier::Task>& tasks) {
  const Operand& b = product.b;
  float* packed = memory.floats(kDepth * round_up(std::min(kColumns, product.columns), kTileColumns));
  for (uint64_t column = 0; column < product.columns; column += kColumns) {
    const uint64_t columns = std::min(kColumns, product.columns - column);
    tasks.clear();
    for (uint64_t i = 0; i < product.rows; i += kRows)
      for (uint64_t j = column; j < column + columns; j += kStrip)
        if (!product.is_symmetric || j < i + kRows) tasks.push_back({i, j});
    for (uint64_t begin = 0; begin < product.depth; begin += kDepth) {
      const uint64_t depth = std::min(kDepth, product.depth - begin);
      host.parallel_for((columns + kTileColumns - 1) / kTileColumns, 1, [&](uint64_t first, uint64_t last) {
        for (uint64_t panel = first; panel < last; ++panel) {
          const uint64_t j = panel * kTileColumns;
          pack<kTileColumns>(b.data + begin * b.row_stride + (column + j) * b.column_stride, b.column_stride,
                             std::min(kTileColumns, columns - j), b.row_stride, depth, packed + j * depth);
        }
      });
      const bool is_first = begin == 0;
      const Block block{
          product, begin,  depth,
          column,  packed, TileFinish{product.alpha, product.beta, is_first ? product.d : product.c, is_first, product.columns}};
      host.parallel_for(tasks.size(), 1, [&](uint64_t first, uint64_t last) {
        alignas(64) float rows[kRows * kDepth];
        for (uint64_t t = first; t < last; ++t) {
          if (t == first || tasks[t].row != tasks[t - 1].row) block.pack_rows(tasks[t].row, rows);
          block.run(tasks[t].row, tasks[t].column, rows);
        }
      });
    }
  }
  if (product.is_symmetric) mirror(product.c, product.rows, host);
}

}  // namespace gannet::rules::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gannet::rules {

HWY_EXPORT(multiply);

void Multiplier::operator()(const Product& product) { HWY_DYNAMIC_DISPATCH(multiply)(product, host_, packed_, tasks_); }

}  // namespace gannet::rules
#endif
