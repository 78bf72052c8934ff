// Rules that misuse what ABI 2.4 gives: the step's loss, low-rank factors, metrics, and the planned length of the run.
#include <algorithm>
#include <cmath>

#include "rule.h"

namespace {

using namespace bad;

// Sound: a rate from the loss that decays over the run, decaying sums of a matrix's rows and columns as factors, and the rate as
// a metric.
struct Scaled : Momentum {
  using Momentum::Momentum;
  static constexpr uint64_t kWidth = 4;
  enum States { kMomentum, kLeft, kRight };
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR | GANNET_OPTIMIZER_USES_LOSS; }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), factor_state("left", GANNET_STATE_ROW_FACTOR, kWidth, 0.5),
            factor_state("right", GANNET_STATE_COLUMN_FACTOR, kWidth)};
  }
  static double decay(uint64_t step, uint64_t total) {
    if (total == 0) return 1;
    return step > total ? 0 : 1 - static_cast<double>(step - 1) / static_cast<double>(total);
  }
  static double by_loss(double loss) { return std::isnan(loss) ? 1 : loss / (1 + std::fabs(loss)); }
  static double rate(double lr, double loss, uint64_t step, uint64_t total) { return lr * by_loss(loss) * decay(step, total); }
  static uint64_t width_of(const gannet_segment& part) { return std::min({kWidth, part.matrix_rows, part.columns}); }

  void update(const gannet_update_args& a) { update_with(a, rate(a.hyper[0], a.loss, a.step, a.total_steps)); }
  void update_with(const gannet_update_args& a, double rate) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      write_factors(a, s, width_of(part));
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) element(a, i, rate);
    }
  }
  // [matrices][rows][width] and [matrices][columns][width]; a factor's column k has half of what the one before it has.
  void write_factors(const gannet_update_args& a, uint64_t s, uint64_t width) {
    const gannet_segment& part = segment(a, s);
    auto *const left = square<float>(a, s, kLeft), *const right = square<float>(a, s, kRight);
    for (uint64_t i = 0; left && right && i < part.numel; ++i) {
      const double g = grad(a)[part.offset + i] * a.grad_scale;
      const uint64_t matrix = i / (part.matrix_rows * part.columns);
      const uint64_t row = i / part.columns, column = matrix * part.columns + i % part.columns;
      for (uint64_t k = 0; k < width; ++k) {
        left[row * width + k] = static_cast<float>(0.9 * left[row * width + k] + std::ldexp(g, -static_cast<int>(k)));
        right[column * width + k] = static_cast<float>(0.9 * right[column * width + k] + std::ldexp(g, -static_cast<int>(k)));
      }
      param(a)[part.offset + i] -= 1e-3f * left[row * width] * right[column * width];
    }
  }
  void end_step(const gannet_step_args& a) { metric("rate", rate(a.hyper[0], a.loss, a.step, a.total_steps)); }
};

// Sound too: begin_step keeps the rate for the step's updates.
struct FromBegin : Scaled {
  using Scaled::Scaled;
  static constexpr size_t kKept = 3;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Scaled::states();
    all.push_back(state("kept", GANNET_STATE_SCALAR, GANNET_FLOAT64));
    return all;
  }
  void begin_step(const gannet_step_args& a) {
    *static_cast<double*>(a.states[kKept]) = rate(a.hyper[0], a.loss, a.step, a.total_steps);
  }
  void update(const gannet_update_args& a) { update_with(a, *static_cast<double*>(a.states[kKept])); }
};

// ---- The loss
struct LossUnclaimed : Scaled {  // it is NaN then
  using Scaled::Scaled;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  void update(const gannet_update_args& a) { update_with(a, a.hyper[0] * a.loss / (1 + std::fabs(a.loss))); }
};
struct LossOnce : Scaled {  // that of the first step, for ever
  using Scaled::Scaled;
  void begin_step(const gannet_step_args& a) {
    if (std::isnan(loss_)) loss_ = a.loss;
  }
  void update(const gannet_update_args& a) { update_with(a, rate(a.hyper[0], loss_, a.step, a.total_steps)); }
  double loss_ = NAN;
};
struct LossIgnored : Scaled {  // claims what it does not use
  using Scaled::Scaled;
  void update(const gannet_update_args& a) { update_with(a, a.hyper[0]); }
};
struct LossOfAll : Scaled {  // takes every loss for a number
  using Scaled::Scaled;
  void update(const gannet_update_args& a) { update_with(a, a.hyper[0] * a.loss / (1 + std::fabs(a.loss))); }
};
struct LossWritten : Scaled {
  using Scaled::Scaled;
  void update(const gannet_update_args& a) {
    const_cast<volatile double&>(a.loss) = by_loss(a.loss);
    Scaled::update(a);
  }
};

// ---- The planned length
struct LengthOnce : Scaled {  // that of the first call
  using Scaled::Scaled;
  void update(const gannet_update_args& a) {
    if (!is_known_) total_ = a.total_steps;
    is_known_ = true;
    update_with(a, rate(a.hyper[0], a.loss, a.step, total_));
  }
  bool is_known_ = false;
  uint64_t total_ = 0;
};
struct LengthDivides : Scaled {  // also where it is unknown
  using Scaled::Scaled;
  void update(const gannet_update_args& a) {
    update_with(a, a.hyper[0] * by_loss(a.loss) * (1 - static_cast<double>(a.step) / static_cast<double>(a.total_steps)));
  }
};

// ---- Factors
struct FactorWidth : Scaled {  // a tensor may have fewer columns than the state's limit
  using Scaled::Scaled;
  void update(const gannet_update_args& a) {
    for (uint64_t s = 0; s < a.segment_count; ++s) write_factors(a, s, kWidth);
    Momentum::update(a);
  }
};
struct FactorInSums : Scaled {  // written where they are only read
  using Scaled::Scaled;
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_TENSOR)}; }
  void sums(const gannet_update_args& a, uint32_t, double*) {
    for (uint64_t s = 0; s < a.segment_count; ++s)
      if (volatile float* const left = square<float>(a, s, kLeft)) left[0] = left[0];
  }
};

// ---- Metrics
struct MetricInUpdate : Scaled {  // once for every piece, in no order
  using Scaled::Scaled;
  void update(const gannet_update_args& a) {
    Scaled::update(a);
    metric("numel", static_cast<double>(a.numel));
  }
};
struct MetricUnnamed : Scaled {  // a sentence is no name
  using Scaled::Scaled;
  void end_step(const gannet_step_args& a) { metric("learning rate", a.hyper[0]); }
};
struct MetricCounted : Scaled {  // of the process, not of the run
  using Scaled::Scaled;
  void end_step(const gannet_step_args&) {
    static double calls = 0;
    metric("calls", ++calls);
  }
};
struct MetricNan : Scaled {
  using Scaled::Scaled;
  void end_step(const gannet_step_args&) { metric("nothing", NAN); }
};
struct MetricUnheeded : Momentum {  // does not look at what the host answers
  using Momentum::Momentum;
  void end_step(const gannet_step_args& a) { (void)host().metric(host().context, "a,b", a.hyper[0], nullptr); }
};
struct MetricUnasked : Momentum {  // the table of an older host ends before it
  using Momentum::Momentum;
  void end_step(const gannet_step_args& a) { (void)host().metric(host().context, "lr", a.hyper[0], nullptr); }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/scaled optimizer/frombegin optimizer/lossunclaimed optimizer/lossonce optimizer/lossignored optimizer/lossofall "
    "optimizer/losswritten "
    "optimizer/lengthonce optimizer/lengthdivides optimizer/factorwidth optimizer/factorinsums optimizer/metricinupdate "
    "optimizer/metricunnamed optimizer/metriccounted optimizer/metricnan optimizer/metricunheeded optimizer/metricunasked",
    GANNET_TIER_STABLE, RULE(Scaled), RULE(FromBegin), RULE(LossUnclaimed), RULE(LossOnce), RULE(LossIgnored), RULE(LossOfAll),
    RULE(LossWritten), RULE(LengthOnce), RULE(LengthDivides), RULE(FactorWidth), RULE(FactorInSums), RULE(MetricInUpdate),
    RULE(MetricUnnamed), RULE(MetricCounted), RULE(MetricNan), RULE(MetricUnheeded), RULE(MetricUnasked))
