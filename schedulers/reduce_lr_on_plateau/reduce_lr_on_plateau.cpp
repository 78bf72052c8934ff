// ReduceLROnPlateau, with the parameters and semantics of
// torch.optim.lr_scheduler.ReduceLROnPlateau. The learning rate is reduced by a factor when the
// metric has stopped improving. The program calls scheduler->step(metric) once per evaluation.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gannet/sdk.hpp>
#include <string>
#include <vector>

namespace gannet::schedulers {
namespace {

class ReduceLrOnPlateau : public sdk::SchedulerBase {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::text("mode", "\"min\"", "min|max", "whether a smaller or a larger metric is better"),
      sdk::below(sdk::above(sdk::number("factor", "0.1", "the learning rate is multiplied by it"), 0), 1),
      sdk::at_least(sdk::integer("patience", "10", "calls without a better metric that are waited for"), 0),
      sdk::at_least(sdk::number("threshold", "1e-4", "by how much a metric must be better to count"), 0),
      sdk::text("threshold_mode", "\"rel\"", "rel|abs", "whether the threshold is a share of the best metric"),
      sdk::at_least(sdk::integer("cooldown", "0", "calls after a reduction in which none is counted"), 0),
      sdk::at_least(sdk::numbers("min_lr", 0, "0.0", "lower bound: one for all parameter groups, or a list with one for each"),
                    0),
      sdk::at_least(sdk::number("eps", "1e-8", "a reduction by less than this is not made"), 0),
  };

  ReduceLrOnPlateau(const sdk::HostServices& host, const sdk::Params& params, uint32_t groups)
      : SchedulerBase(host),
        is_min_(params.text("mode") == "min"),
        is_relative_(params.text("threshold_mode") == "rel"),
        factor_(params.number("factor")),
        threshold_(params.number("threshold")),
        eps_(params.number("eps")),
        patience_(static_cast<double>(params.integer("patience"))),
        cooldown_(static_cast<double>(params.integer("cooldown"))),
        min_lr_(params.numbers("min_lr")) {
    if (min_lr_.size() == 1) min_lr_.resize(groups, min_lr_[0]);
    if (min_lr_.size() != groups)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT, "expected " + std::to_string(groups) + " values for 'min_lr', got " +
                                                      std::to_string(min_lr_.size()) +
                                                      ": give one number for all parameter groups, or a list with one for each");
  }

  uint64_t state_count() const { return kStateCount; }
  bool needs_metric() const { return true; }

  void advance(const gannet_schedule_advance& args) const {
    double* const state = args.state;
    const bool is_better = state[kIsBegun] == 0 || beats(args.metric, state[kBest]);
    if (is_better) state[kBest] = args.metric;
    state[kIsBegun] = 1;
    state[kBad] = is_better ? 0 : state[kBad] + 1;
    if (state[kCooldown] > 0) {
      --state[kCooldown];
      state[kBad] = 0;
    }
    if (state[kBad] <= patience_) return;
    ++state[kReductions];
    state[kCooldown] = cooldown_;
    state[kBad] = 0;
  }

  // Applies the reductions to the group's own rate, skipping those that are too small.
  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    double rate = sdk::base_value(query, GANNET_ROLE_LEARNING_RATE);
    for (double done = 0; done < query.state[kReductions]; ++done) {
      const double reduced = std::max(rate * factor_, min_lr_[query.group]);
      if (rate - reduced > eps_) rate = reduced;
    }
    return sdk::ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, rate);
  }

 private:
  enum State : uint64_t { kIsBegun, kBest, kBad, kCooldown, kReductions, kStateCount };
  bool beats(double metric, double best) const {
    if (is_min_) return metric < (is_relative_ ? best * (1 - threshold_) : best - threshold_);
    return metric > (is_relative_ ? best * (1 + threshold_) : best + threshold_);
  }

  bool is_min_, is_relative_;
  double factor_, threshold_, eps_, patience_, cooldown_;
  std::vector<double> min_lr_;  // one per group
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/reducelronplateau", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::ReduceLrOnPlateau>(
                   "ReduceLROnPlateau", "1.0.0", "a smaller learning rate when a metric no longer becomes better"))
