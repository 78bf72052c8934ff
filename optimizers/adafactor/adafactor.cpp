// Adafactor on the CPU.
#include "optimizers/adafactor/adafactor.h"

namespace gannet::rules {
namespace {

class Adafactor : public AdafactorBase {
 public:
  using AdafactorBase::AdafactorBase;

  void sums(const gannet_update_args& args, uint32_t round, double* sums) {
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      double* const own = sums + s * args.sum_count;
      with_gradient(args, [&](const auto& gradient) {
        if (round == 0)
          add_lines(args, part, gradient, own);
        else
          own[kUpdate] += size_of_update(args, part, gradient);
      });
    }
  }

  void update(const gannet_update_args& args) {
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      with_gradient(args, [&](const auto& gradient) { update_part(args, part, gradient, args.sums + s * args.sum_count); });
    }
  }

 private:
  static constexpr uint64_t kColumnsAtOnce = 64;
  static uint64_t grain_of(const gannet_segment& part) { return std::max<uint64_t>(sdk::kGrain / part.columns, 1); }

  // Round 0. Each thread processes whole rows, or whole columns, of the part.
  template <class Gradient>
  void add_lines(const gannet_update_args& args, const gannet_segment& part, const Gradient& gradient, double* sums) {
    const RowRanges rows(part);
    const double eps = this->eps();
    const auto* const param = static_cast<const float*>(args.param);
    const auto square = [&](uint64_t i) { return adafactor_square(gradient(i), eps); };
    by_row_.assign(rows.count(), 0);
    parallel_for(rows.count(), grain_of(part), [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r) {
        const RowRange row = rows[r];
        args.lines[kRowSum][part.first_row + row.number] += sum_over(row.begin, row.end, square);
        by_row_[r] = sum_over(row.begin, row.end, [&](uint64_t i) { return double{param[i]} * param[i]; });
      }
    });
    for (const double weights : by_row_) sums[kWeights] += weights;
    sums[kElements] += static_cast<double>(part.numel);
    const uint64_t blocks = (part.columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
    parallel_for(blocks, std::max<uint64_t>(sdk::kGrain / (rows.count() * kColumnsAtOnce + 1), 1),
                 [&](uint64_t begin, uint64_t end) {
                   const uint64_t first = begin * kColumnsAtOnce, last = std::min(end * kColumnsAtOnce, part.columns);
                   for (uint64_t r = 0; r < rows.count(); ++r) {
                     const RowRange row = rows[r];
                     double* const lines = args.lines[kColumnSum] + part.first_column + row.matrix * part.columns;
                     const uint64_t from = std::max(first, row.column), to = std::min(last, row.column + row.end - row.begin);
                     for (uint64_t c = from; c < to; ++c) lines[c] += square(row.begin + c - row.column);
                   }
                 });
  }

  // Round 1: returns the sum of squares of the update.
  template <class Gradient>
  double size_of_update(const gannet_update_args& args, const gannet_segment& part, const Gradient& gradient) {
    const InverseRoots roots = roots_of(args, part);
    by_row_.assign(roots.rows().count(), 0);
    parallel_for(roots.rows().count(), grain_of(part), [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r) {
        const RowRange row = roots.rows()[r];
        const float of_row = roots.of_row(row);
        const float* const of_columns = roots.of_columns(row);
        by_row_[r] = sum_over(row.begin, row.end, [&](uint64_t i) {
          const double u = adafactor_direction(gradient(i), of_row, of_columns[i - row.begin]);
          return u * u;
        });
      }
    });
    double sum = 0;
    for (const double row : by_row_) sum += row;
    return sum;
  }

  template <class Gradient>
  void update_part(const gannet_update_args& args, const gannet_segment& part, const Gradient& gradient, const double* sums) {
    const InverseRoots roots = roots_of(args, part);
    const AdafactorRule shared_rule = rule_of(args, part, sums);
    auto* const param = static_cast<float*>(args.param);
    auto* const exp_avg = has_first_moment() ? static_cast<float*>(args.states[kFirstMoment]) : nullptr;
    parallel_for(roots.rows().count(), grain_of(part), [&](uint64_t begin, uint64_t end) {
      const AdafactorRule rule = shared_rule;  // a copy that no store can alias: its members stay in registers
      for (uint64_t r = begin; r < end; ++r) {
        const RowRange row = roots.rows()[r];
        const float of_row = roots.of_row(row);
        const float* const of_columns = roots.of_columns(row);
        for (uint64_t i = row.begin; i < row.end; ++i)
          rule(adafactor_direction(gradient(i), of_row, of_columns[i - row.begin]), param[i], exp_avg ? exp_avg + i : nullptr);
        if (args.out_dtype != GANNET_DTYPE_NONE)
          sdk::narrow(static_cast<char*>(args.out) + 2 * row.begin, param + row.begin, row.end - row.begin, args.out_dtype);
      }
    });
  }

  std::vector<double> by_row_;  // kept between calls, so that a step allocates little
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/adafactor@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Adafactor>("Adafactor", "cpu", "1.0.0",
                                                                "second moments by rows and columns, updates clipped by size"))
