// Adafactor on a device, tensor by tensor. The row and column averages are in host memory, where
// the host combines pieces and ranks. The host computes the factors of rows and columns from them
// and uploads the factors.
//
// For each tensor, a piece costs two or three launches in the first round of sums, one in the
// second and one in the update. Each of these three calls waits for the device. Row and column sums
// are added in double in a different order than on the CPU, so they may differ in the last bits.
// All other values use the same formulas with the same roundings.
#pragma once

#include <type_traits>
#include <vector>

#include "optimizers/adafactor/adafactor.h"
#include "optimizers/adafactor/blocks.h"
#include "optimizers/device/part.h"
#include "optimizers/device/team.h"

namespace gannet::rules {
namespace device {

// Computes, for each block of RowBlocks, the sums of squares of the gradients and of the
// parameters.
template <class Device, class Grad>
struct RowSumsKernel {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    double squares[kThreads], weights[kThreads];
  };
  RowBlocks blocks;
  double eps;
  float grad_scale;
  const float* param;
  const Grad* grad;
  double* squares;  // one per block
  double* weights;  // one per block

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    team.each([&](unsigned t) {
      const RowRange row = blocks[block];
      double of_gradients = 0, of_weights = 0;
      for (uint64_t i = row.begin + t; i < row.end; i += kThreads) {
        of_gradients += adafactor_square(Device::widen(grad[i]) * grad_scale, eps);
        of_weights += double{param[i]} * param[i];
      }
      shared.squares[t] = of_gradients;
      shared.weights[t] = of_weights;
    });
    add_up<kThreads>(team, shared.squares);
    add_up<kThreads>(team, shared.weights);
    team.each([&](unsigned t) {
      if (t != 0) return;
      squares[block] = shared.squares[0];
      weights[block] = shared.weights[0];
    });
  }
};

// Computes, for each block of ColumnBlocks, the sums of squares of the gradients by column. Eight
// threads share a column; each takes every eighth row.
template <class Device, class Grad>
struct ColumnSumsKernel {
  static constexpr unsigned kThreads = 256, kWidth = ColumnBlocks::kColumns, kGroups = kThreads / kWidth;
  struct Shared {
    double sums[kThreads];
  };
  ColumnBlocks blocks;
  double eps;
  float grad_scale;
  const Grad* grad;
  double* sums;  // blocks.sums() of them

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    const ColumnBlocks::Block own = blocks[block];
    team.each([&](unsigned t) {
      const uint64_t column = own.first_column + t % kWidth;
      double sum = 0;
      if (column < own.end_column)
        for (uint64_t row = own.first_row + t / kWidth; row < own.end_row; row += kGroups) {
          const uint64_t element = row * blocks.rows().columns() + column;
          if (blocks.rows().has(element))
            sum += adafactor_square(Device::widen(grad[blocks.rows().place(element)]) * grad_scale, eps);
        }
      shared.sums[t] = sum;
    });
    team.each([&](unsigned t) {
      if (t >= kWidth || own.first_column + t >= own.end_column) return;
      double sum = shared.sums[t];
      for (unsigned group = 1; group < kGroups; ++group) sum += shared.sums[group * kWidth + t];
      sums[own.sums + t] = sum;
    });
  }
};

// Adds up the sums of a column's blocks, in the order of the blocks.
struct AddColumns {
  ColumnBlocks blocks;
  const double* sums;
  double* totals;
  GANNET_DEVICE void operator()(uint64_t i) const {
    const double* next = sums + blocks.first_sum(i);
    double total = *next;
    for (uint64_t block = 1; block < blocks.down(); ++block) total += *(next += blocks.next_sum());
    totals[i] = total;
  }
};

// The factors of a gradient: [rows] and [matrices][columns] of the part.
struct DeviceRoots {
  const float* of_rows;
  const float* of_columns;
  GANNET_DEVICE const float* of_columns_of(const RowRanges& rows, const RowRange& row) const {
    return of_columns + (row.matrix - rows.first_matrix()) * rows.columns() + row.column;
  }
};

// Computes, for each block of RowBlocks, the sum of squares of the update.
template <class Device, class Grad>
struct UpdateSizeKernel {
  static constexpr unsigned kThreads = 128;
  struct Shared {
    double sums[kThreads];
  };
  RowBlocks blocks;
  float grad_scale;
  DeviceRoots roots;
  const Grad* grad;
  double* sums;  // one per block

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    team.each([&](unsigned t) {
      const RowRange row = blocks[block];
      const float of_row = roots.of_rows[blocks.row_of(block)];
      const float* const of_columns = roots.of_columns_of(blocks.rows(), row);
      double sum = 0;
      for (uint64_t i = row.begin + t; i < row.end; i += kThreads) {
        const double u = adafactor_direction(Device::widen(grad[i]) * grad_scale, of_row, of_columns[i - row.begin]);
        sum += u * u;
      }
      shared.sums[t] = sum;
    });
    add_up<kThreads>(team, shared.sums);
    team.each([&](unsigned t) {
      if (t == 0) sums[block] = shared.sums[0];
    });
  }
};

template <class Device, class Grad, class Out>
struct AdafactorKernel {
  static constexpr unsigned kThreads = 128;
  struct Shared {};
  RowBlocks blocks;
  AdafactorRule rule;
  float grad_scale;
  DeviceRoots roots;
  float* param;
  const Grad* grad;
  Out* out;
  float* exp_avg;  // null if there is no first moment

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared&) const {
    team.each([&](unsigned t) {
      const RowRange row = blocks[block];
      const float of_row = roots.of_rows[blocks.row_of(block)];
      const float* const of_columns = roots.of_columns_of(blocks.rows(), row);
      for (uint64_t i = row.begin + t; i < row.end; i += kThreads) {
        float p = param[i];
        rule(adafactor_direction(Device::widen(grad[i]) * grad_scale, of_row, of_columns[i - row.begin]), p,
             exp_avg ? exp_avg + i : nullptr);
        param[i] = p;
        if constexpr (!std::is_same_v<Out, NoCopy>) Device::narrow(p, out[i]);
      }
    });
  }
};

}  // namespace device

template <class Device>
class AdafactorOn : public AdafactorBase {
 public:
  using AdafactorBase::AdafactorBase;

  void sums(const gannet_update_args& args, uint32_t round, double* sums) {
    if (args.numel == 0) return;
    typename Device::Work work(device_, args);
    with_gradient_and_copy<Device>(args, [&](const auto* grad, const auto*) {
      if (round == 0)
        add_lines(work, args, grad, sums);
      else
        add_sizes(work, args, grad, sums);
    });
  }

  void update(const gannet_update_args& args) {
    if (args.numel == 0) return;
    typename Device::Work work(device_, args);
    with_gradient_and_copy<Device>(args, [&](const auto* grad, auto* out) { update_all(work, args, grad, out); });
  }

 private:
  using Work = typename Device::Work;
  enum Memory : size_t { kTotals, kBlockSums, kRoots };

  // Round 0. Adds, for each part, the squares of gradients and of parameters by RowBlocks, and then
  // the squares of gradients by columns.
  template <class Grad>
  void add_lines(Work& work, const gannet_update_args& args, const Grad* grad, double* sums) {
    const auto scale = static_cast<float>(args.grad_scale);
    uint64_t count = 0, most = 0;
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const ColumnBlocks columns(sdk::segment(args, s));
      count += 2 * RowBlocks(sdk::segment(args, s)).count() + columns.totals();
      if (columns.down() > 1) most = std::max(most, columns.sums());
    }
    double* const totals = work.template memory<double>(kTotals, count);
    double* const block_sums = work.template memory<double>(kBlockSums, most);
    double* next = totals;
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const RowBlocks rows(sdk::segment(args, s));
      const ColumnBlocks columns(sdk::segment(args, s));
      work.run(device::RowSumsKernel<Device, Grad>{rows, eps(), scale, static_cast<const float*>(args.param), grad, next,
                                                   next + rows.count()},
               rows.count());
      next += 2 * rows.count();
      const bool is_cut = columns.down() > 1;
      work.run(device::ColumnSumsKernel<Device, Grad>{columns, eps(), scale, grad, is_cut ? block_sums : next}, columns.count());
      if (is_cut) device::run_each(work, columns.totals(), device::AddColumns{columns, block_sums, next});
      next += columns.totals();
    }
    on_host_.resize(count);
    work.to_host(on_host_.data(), totals, count);
    const double* from = on_host_.data();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      const RowBlocks rows(part);
      for (uint64_t block = 0; block < rows.count(); ++block)
        args.lines[kRowSum][part.first_row + rows.rows().first() + rows.row_of(block)] += *from++;
      for (uint64_t block = 0; block < rows.count(); ++block) sums[s * args.sum_count + kWeights] += *from++;
      sums[s * args.sum_count + kElements] += static_cast<double>(part.numel);
      double* const lines = args.lines[kColumnSum] + part.first_column + rows.rows().first_matrix() * part.columns;
      const uint64_t columns = ColumnBlocks(part).totals();
      for (uint64_t c = 0; c < columns; ++c) lines[c] += *from++;
    }
  }

  // Round 1: adds the squares of the update.
  template <class Grad>
  void add_sizes(Work& work, const gannet_update_args& args, const Grad* grad, double* sums) {
    uint64_t count = 0;
    for (uint64_t s = 0; s < args.segment_count; ++s) count += RowBlocks(sdk::segment(args, s)).count();
    double* const totals = work.template memory<double>(kTotals, count);
    double* next = totals;
    const float* roots = upload_roots(work, args);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const RowBlocks blocks(sdk::segment(args, s));
      const device::DeviceRoots own = next_roots(roots, blocks.rows());
      work.run(device::UpdateSizeKernel<Device, Grad>{blocks, static_cast<float>(args.grad_scale), own, grad, next},
               blocks.count());
      next += blocks.count();
    }
    on_host_.resize(count);
    work.to_host(on_host_.data(), totals, count);
    const double* from = on_host_.data();
    for (uint64_t s = 0; s < args.segment_count; ++s)
      for (uint64_t block = RowBlocks(sdk::segment(args, s)).count(); block > 0; --block)
        sums[s * args.sum_count + kUpdate] += *from++;
  }

  template <class Grad, class Out>
  void update_all(Work& work, const gannet_update_args& args, const Grad* grad, Out* out) {
    const float* roots = upload_roots(work, args);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      const RowBlocks blocks(part);
      const device::DeviceRoots own = next_roots(roots, blocks.rows());
      work.run(
          device::AdafactorKernel<Device, Grad, Out>{
              blocks, rule_of(args, part, args.sums + s * args.sum_count), static_cast<float>(args.grad_scale), own,
              static_cast<float*>(args.param), grad, out,
              has_first_moment() ? static_cast<float*>(args.states[kFirstMoment]) : nullptr},
          blocks.count());
    }
  }

  // Uploads, for each part, the factors of its rows and then those of its columns.
  const float* upload_roots(Work& work, const gannet_update_args& args) {
    roots_.clear();
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const InverseRoots own = roots_of(args, sdk::segment(args, s));
      roots_.insert(roots_.end(), own.of_rows().begin(), own.of_rows().end());
      roots_.insert(roots_.end(), own.of_columns().begin(), own.of_columns().end());
    }
    float* const on_device = work.template memory<float>(kRoots, roots_.size());
    work.to_device(on_device, roots_.data(), roots_.size());
    return on_device;
  }
  static device::DeviceRoots next_roots(const float*& next, const RowRanges& rows) {
    const device::DeviceRoots own{next, next + rows.count()};
    next += rows.count() + rows.matrix_count() * rows.columns();
    return own;
  }

  Device device_;
  std::vector<double> on_host_;  // on_host_ and roots_ are kept between calls, so that a step allocates little
  std::vector<float> roots_;
};

}  // namespace gannet::rules
