// Adafactor (Shazeer & Stern 2018), except for the loops, which each device implements. It has the
// parameters and semantics of Hugging Face transformers' Adafactor. The second moment is one number
// per row and one per column (second_moment.h), replicated on every rank. A first moment is kept if
// beta1 is given.
//
// A step has two rounds of sums: the first is over rows and columns, and the second gives the size
// of the resulting update, by which the update is clipped.
//
// With relative_step the learning rate is a function of the step, and lr (then 1 by default) scales
// it, so that a schedule or the program still has an effect.
#pragma once

#include <algorithm>
#include <cmath>
#include <gannet/sdk_rule.hpp>
#include <vector>

#include "optimizers/adafactor/rule.h"
#include "optimizers/adafactor/second_moment.h"

namespace gannet::rules {

enum AdafactorState : uint64_t { kRow, kColumn, kCount, kFirstMoment };
enum AdafactorSum : uint64_t { kRowSum, kColumnSum, kWeights, kElements, kUpdate };

class AdafactorBase : public sdk::OptimizerBase {
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

  AdafactorBase(const gannet_host& host, const sdk::Params& params)
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

  // Updates the averages. A tensor without a gradient in this step has kElements 0 and is skipped.
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

 protected:
  bool has_first_moment() const { return beta1_ >= 0; }
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
  double eps() const { return params_.number("eps", 0); }
  // `sums` has the sums of both rounds for the part's tensor.
  AdafactorRule rule_of(const gannet_update_args& args, const gannet_segment& part, const double* sums) const {
    const auto numel = static_cast<double>(part.tensor_numel);
    const double rate = learning_rate_at(args, count_of(args, part), std::sqrt(sums[kWeights] / numel));
    const double clip = std::max(1.0, std::sqrt(sums[kUpdate] / numel) / params_.number("clip_threshold"));
    return {static_cast<float>(rate / clip), static_cast<float>(params_.number_in(args, "weight_decay", 0) * rate), beta1_};
  }

 private:
  sdk::RuleParams params_;
  bool is_relative_;
  float beta1_;  // negative if there is no first moment
};

}  // namespace gannet::rules
