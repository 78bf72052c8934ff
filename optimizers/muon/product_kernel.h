// A matrix product (product.h) in fp32 on a device, without a library. c is computed in tiles of 64
// x 64, one per thread block. Each of 64 threads computes 8 x 8 elements in registers from 16-deep
// strips of a and b in shared memory.
//
// The elements are bitwise equal to the CPU's: each is summed along the depth with fused
// multiply-adds, in blocks of the same size, and each block is added to c with the same operations.
// So the depth is not split among thread blocks, and tensor cores, which round differently, are
// not used. An H100 reaches only a fraction of its fp32 peak.
#pragma once

#include "optimizers/device/team.h"
#include "optimizers/muon/product.h"

namespace gannet::rules::device {

struct ProductKernel {
  static constexpr unsigned kThreads = 64, kTile = 64, kStep = 16, kEach = 8;
  static constexpr uint64_t kDepth = kProductDepth;
  static_assert(kDepth % kStep == 0 && kTile * kTile == kThreads * kEach * kEach);

  struct alignas(16) FloatPack {
    float at[4];
  };
  // The rows of a (or columns of b) in a tile, as [depth][tile]. Each row of packs is padded by one
  // pack, so that threads that write a column have fewer bank conflicts.
  struct Strip {
    FloatPack packs[kStep][kTile / 4 + 1];
  };
  struct Shared {
    Strip a, b;
  };
  struct Sums {
    float at[kEach][kEach];
  };

  Product product;

  static uint64_t tiles(uint64_t size) { return ceil_div(size, kTile); }
  uint64_t blocks() const { return tiles(product.rows) * tiles(product.columns); }

  // The rows (or columns) of a tile that a thread computes: two packs of four, half a tile apart,
  // so that neighbouring threads read neighbouring packs.
  GANNET_BOTH static unsigned pack_of(unsigned group, unsigned i) { return i / 4 * (kTile / 8) + group; }
  GANNET_BOTH static unsigned line_of(unsigned group, unsigned i) { return pack_of(group, i) * 4 + i % 4; }

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    const uint64_t across = (product.columns + kTile - 1) / kTile;
    const uint64_t first_row = block / across * kTile, first_column = block % across * kTile;
    if (product.is_symmetric && first_column > first_row) return;  // the whole team returns: the mirrored tile writes this one
    const Operand &a = product.a, &b = product.b;
    typename Team::template PerThread<Sums> sums;
    for (uint64_t from = 0; from < product.depth; from += kDepth) {
      const uint64_t to = from + kDepth < product.depth ? from + kDepth : product.depth;
      team.each([&](unsigned t) { sums[t] = Sums{}; });
      for (uint64_t k = from; k < to; k += kStep) {
        team.each([&](unsigned t) {
          fill(t, shared.a, a.data, a.row_stride, a.column_stride, first_row, product.rows, k, to);
          fill(t, shared.b, b.data, b.column_stride, b.row_stride, first_column, product.columns, k, to);
        });
        team.each([&](unsigned t) { add(t, shared, sums[t]); });
      }
      team.each([&](unsigned t) { finish(t, sums[t], first_row, first_column, from == 0, to == product.depth); });
    }
  }

 private:
  // Loads rows (or columns) [first, first + kTile) of an operand at depth [k, k + kStep), padded
  // with zeros. Consecutive threads read contiguous elements.
  GANNET_DEVICE static void fill(unsigned t, Strip& strip, const float* data, uint64_t line_step, uint64_t depth_step,
                                 uint64_t first, uint64_t lines, uint64_t k, uint64_t depth) {
    const bool along_lines = line_step == 1;
    // The thread's first element, and the distance to its next one. Each round of the team loads
    // all rows (or columns) at one depth, or the whole depth of some of them.
    static_assert(kThreads == kTile && kThreads % kStep == 0);
    unsigned line = along_lines ? t : t / kStep, deep = along_lines ? 0 : t % kStep;
    const unsigned next_line = along_lines ? 0 : kThreads / kStep, next_deep = along_lines ? 1 : 0;
    const uint64_t next = next_line * line_step + next_deep * depth_step;
    uint64_t at = (first + line) * line_step + (k + deep) * depth_step;
    GANNET_UNROLL_BY(4)
    for (unsigned n = 0; n < kTile * kStep / kThreads; ++n) {
      const bool is_there = first + line < lines && k + deep < depth;
      strip.packs[deep][line / 4].at[line % 4] = is_there ? data[at] : 0;
      line += next_line;
      deep += next_deep;
      at += next;
    }
  }
  GANNET_DEVICE static void add(unsigned t, const Shared& shared, Sums& sums) {
    const unsigned row = t / 8, column = t % 8;
    GANNET_UNROLL_BY(4)
    for (unsigned k = 0; k < kStep; ++k) {
      const FloatPack a[2] = {shared.a.packs[k][pack_of(row, 0)], shared.a.packs[k][pack_of(row, 4)]};
      const FloatPack b[2] = {shared.b.packs[k][pack_of(column, 0)], shared.b.packs[k][pack_of(column, 4)]};
      GANNET_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        GANNET_UNROLL
        for (unsigned j = 0; j < kEach; ++j) sums.at[i][j] = multiply_add(a[i / 4].at[i % 4], b[j / 4].at[j % 4], sums.at[i][j]);
      }
    }
  }
  // Adds a block of the depth to c in the same way as the CPU does: the first block is added to
  // beta d, the others to the values in c.
  GANNET_DEVICE void finish(unsigned t, const Sums& sums, uint64_t first_row, uint64_t first_column, bool is_first,
                            bool is_last) const {
    compute_here(t);  // else the 64 comparisons below are kept through the loop over the depth
    const float* const base = is_first ? product.d : product.c;
    const float share = is_first ? product.beta : 1;  // of base; 1 changes no bit
    GANNET_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      const uint64_t row = first_row + line_of(t / 8, i);
      const uint64_t end = row >= product.rows ? 0 : product.is_symmetric && row < product.columns ? row + 1 : product.columns;
      GANNET_UNROLL
      for (unsigned j = 0; j < kEach; ++j) {
        const uint64_t column = first_column + line_of(t % 8, j);
        if (column >= end) continue;
        const uint64_t at = row * product.columns + column;
        float value = product.alpha * sums.at[i][j];
        if (base != nullptr) value = multiply_add(product.alpha, sums.at[i][j], share * base[at]);
        product.c[at] = value;
        if (product.is_symmetric && is_last) product.c[column * product.columns + row] = value;
      }
    }
  }
  GANNET_DEVICE static float multiply_add(float a, float b, float c) {
    return fma(Scalar<float>(a), Scalar<float>(b), Scalar<float>(c)).value;
  }
};

}  // namespace gannet::rules::device
