// Adafactor (Shazeer & Stern 2018): the parameters and the semantics of the one in Hugging Face's transformers. Its second moment
// takes a number per row and per column (second_moment.h), on every rank; a first moment is kept where beta1 is given.
//
// A step has two rounds of sums: those of rows and columns, and the size of the update that follows from them, by which it is
// clipped.
//
// With relative_step the learning rate is a function of the step, and lr, which is 1 then, a factor of it: what a schedule or the
// program sets has an effect.
#include <gannet/sdk_rule.hpp>

#include "second_moment.h"

namespace gannet::rules {
namespace {

enum State : uint64_t { kRow, kColumn, kCount, kFirstMoment };
enum Sum : uint64_t { kRowSum, kColumnSum, kWeights, kElements, kUpdate };

class Adafactor : public sdk::OptimizerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::learning_rate("1.0"), 0),
      sdk::at_least(sdk::numbers("eps", 2, "[1e-30, 1e-3]", "added to squares of gradients; the least scale of a parameter"), 0),
      sdk::above(sdk::number("clip_threshold", "1.0", "largest root mean square of an update, before the learning rate"), 0),
      sdk::at_most(sdk::number("decay_rate", "-0.8", "the second moment decays by 1 - step^decay_rate"), 0),
      sdk::below(
          sdk::at_least(
              sdk::number("beta1", nullptr, "decay of a first moment; none is kept unless given", GANNET_PARAM_NULLABLE), 0),
          1),
      sdk::at_least(sdk::weight_decay("0.0", "decoupled weight decay"), 0),
      sdk::boolean("scale_parameter", "true", "multiply the learning rate by the parameter's root mean square"),
      sdk::boolean("relative_step", nullptr, "the learning rate is a function of the step: unless lr is given",
                   GANNET_PARAM_NULLABLE),
      sdk::boolean("warmup_init", "false", "with relative_step: the rate begins at 1e-6 per step"),
      sdk::max_grad_norm(),
  };

  Adafactor(const gannet_host& host, const sdk::Params& params)
      : OptimizerBase(host, params), params_(kParams, sizeof(kParams) / sizeof(kParams[0]), params) {
    is_relative_ = params.has("relative_step") ? params.boolean("relative_step") : !params.given("lr");
    if (is_relative_ && params.given("lr"))
      throw sdk::Failure(GANNET_INVALID_ARGUMENT,
                         "'lr' is given and 'relative_step' is true, which takes the learning rate from the step: remove one");
    if (!is_relative_ && !params.given("lr"))
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "'relative_step' is false and no 'lr' is given: give one");
    if (params.boolean("warmup_init") && !is_relative_)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "'warmup_init' needs 'relative_step': remove 'lr', or 'warmup_init'");
    sdk::refuse_max_grad_norm(params_);
    beta1_ = params.has("beta1") ? static_cast<float>(params.number("beta1")) : -1;
  }

  bool supports(uint32_t param, uint32_t grad, uint32_t out) const {
    return param == GANNET_FLOAT32 && sdk::elementwise_supports(param, grad, out);
  }
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = {sdk::state("exp_avg_sq_row", GANNET_STATE_PER_ROW, GANNET_FLOAT32),
                                          sdk::state("exp_avg_sq_col", GANNET_STATE_PER_COLUMN, GANNET_FLOAT32),
                                          sdk::state("step_count", GANNET_STATE_PER_TENSOR, GANNET_INT64)};
    if (has_first_moment()) all.push_back(sdk::state("exp_avg"));
    return all;
  }
  std::vector<gannet_sum_spec> wanted_sums() const {
    return {sdk::sum(GANNET_SUM_OF_ROW), sdk::sum(GANNET_SUM_OF_COLUMN), sdk::sum(GANNET_SUM_OF_TENSOR),
            sdk::sum(GANNET_SUM_OF_TENSOR), sdk::sum(GANNET_SUM_OF_TENSOR, GANNET_SUM, 1)};
  }

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

  // A tensor without a gradient in this step has sums over no elements.
  void end_step(const gannet_step_args& args) {
    auto* const counts = static_cast<int64_t*>(args.states[kCount]);
    for (uint64_t t = 0; t < args.tensor_count; ++t) {
      const gannet_tensor& tensor = sdk::tensor(args, t);
      if (args.sums[t * args.sum_count + kElements] == 0) continue;
      const double beta = decay_at(counts[t]++);
      auto* const rows = static_cast<float*>(args.states[kRow]) + tensor.first_row;
      auto* const columns = static_cast<float*>(args.states[kColumn]) + tensor.first_column;
      for (uint64_t r = 0; r < tensor.numel / tensor.columns; ++r)
        rows[r] = new_average(rows[r], args.lines[kRowSum][tensor.first_row + r], tensor.columns, beta);
      for (uint64_t c = 0; c < tensor.numel / tensor.matrix_rows; ++c)
        columns[c] = new_average(columns[c], args.lines[kColumnSum][tensor.first_column + c], tensor.matrix_rows, beta);
    }
  }

 private:
  static constexpr uint64_t kColumnsAtOnce = 64;
  bool has_first_moment() const { return beta1_ >= 0; }
  static uint64_t grain_of(const gannet_segment& part) { return std::max<uint64_t>(sdk::kGrain / part.columns, 1); }
  double decay_at(int64_t steps_before) const {
    return 1 - std::pow(static_cast<double>(steps_before) + 1, params_.number("decay_rate"));
  }
  static int64_t count_of(const gannet_update_args& args, const gannet_segment& part) {
    return static_cast<const int64_t*>(args.states[kCount])[part.tensor_index];
  }
  InverseRoots roots_of(const gannet_update_args& args, const gannet_segment& part) const {
    return InverseRoots(part, static_cast<const float*>(args.states[kRow]) + part.first_row,
                        static_cast<const float*>(args.states[kColumn]) + part.first_column, args.lines[kRowSum] + part.first_row,
                        args.lines[kColumnSum] + part.first_column, decay_at(count_of(args, part)));
  }
  double learning_rate_at(const gannet_update_args& args, int64_t steps_before, double root_mean_square) const {
    const double step = static_cast<double>(steps_before) + 1;
    double rate = args.hyper[0];
    if (is_relative_) rate *= std::min(params_.flag("warmup_init") ? 1e-6 * step : 1e-2, 1 / std::sqrt(step));
    return params_.flag("scale_parameter") ? rate * std::max(params_.number("eps", 1), root_mean_square) : rate;
  }

  // Round 0. A thread has whole rows, or whole columns, of the part.
  template <class Gradient>
  void add_lines(const gannet_update_args& args, const gannet_segment& part, const Gradient& gradient, double* sums) {
    const Rows rows(part);
    const double eps = params_.number("eps", 0);
    const auto* const param = static_cast<const float*>(args.param);
    const auto square = [&](uint64_t i) {
      const double g = gradient(i);
      return g * g + eps;
    };
    by_row_.assign(rows.count(), 0);
    parallel_for(rows.count(), grain_of(part), [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r) {
        const Row row = rows[r];
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
                     const Row row = rows[r];
                     double* const lines = args.lines[kColumnSum] + part.first_column + row.matrix * part.columns;
                     const uint64_t from = std::max(first, row.column), to = std::min(last, row.column + row.end - row.begin);
                     for (uint64_t c = from; c < to; ++c) lines[c] += square(row.begin + c - row.column);
                   }
                 });
  }

  // Round 1.
  template <class Gradient>
  double size_of_update(const gannet_update_args& args, const gannet_segment& part, const Gradient& gradient) {
    const InverseRoots roots = roots_of(args, part);
    by_row_.assign(roots.rows().count(), 0);
    parallel_for(roots.rows().count(), grain_of(part), [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r) {
        const Row row = roots.rows()[r];
        const float of_row = roots.of_row(row);
        const float* const of_columns = roots.of_columns(row);
        by_row_[r] = sum_over(row.begin, row.end, [&](uint64_t i) {
          const double u = gradient(i) * of_row * of_columns[i - row.begin];
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
    const auto numel = static_cast<double>(part.tensor_numel);
    const double rate = learning_rate_at(args, count_of(args, part), std::sqrt(sums[kWeights] / numel));
    const double clip = std::max(1.0, std::sqrt(sums[kUpdate] / numel) / params_.number("clip_threshold"));
    const auto factor = static_cast<float>(rate / clip);
    const auto decay = static_cast<float>(params_.number_in(args, "weight_decay", 0) * rate);
    auto* const param = static_cast<float*>(args.param);
    auto* const exp_avg = has_first_moment() ? static_cast<float*>(args.states[kFirstMoment]) : nullptr;
    parallel_for(roots.rows().count(), grain_of(part), [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r) {
        const Row row = roots.rows()[r];
        const float of_row = roots.of_row(row);
        const float* const of_columns = roots.of_columns(row);
        for (uint64_t i = row.begin; i < row.end; ++i) {
          float u = gradient(i) * of_row * of_columns[i - row.begin] * factor;
          if (exp_avg) u = exp_avg[i] = beta1_ * exp_avg[i] + (1 - beta1_) * u;
          param[i] = param[i] - decay * param[i] - u;
        }
        if (args.out_dtype != GANNET_DTYPE_NONE)
          sdk::narrow(static_cast<char*>(args.out) + 2 * row.begin, param + row.begin, row.end - row.begin, args.out_dtype);
      }
    });
  }

  sdk::RuleParams params_;
  bool is_relative_;
  float beta1_;                 // below 0: no first moment
  std::vector<double> by_row_;  // of the last call: kept, so that a step allocates little
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/adafactor@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Adafactor>("Adafactor", "cpu", "1.0.0",
                                                                "second moments by rows and columns, updates clipped by size"))
