// OneCycle (Smith 2018): the lr rises and falls once while beta1 falls and rises, then the lr
// decays.
//
// This follows DeepSpeed, since tuned runs depend on it: cycle_momentum also sets beta2, to 0.99;
// construction sets beta1 to cycle_min_mom although the first step is near cycle_max_mom; and
// decay_mom_rate makes the momentum grow, not fall.
#include <cmath>

#include "schedulers/common/schedule.h"

namespace gannet::schedulers {
namespace {

constexpr double kBeta2 = 0.99;

class OneCycle : public Schedule {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::numbers("cycle_min_lr", 0, nullptr, "learning rate at the cycle's ends", GANNET_PARAM_REQUIRED), 0),
      sdk::at_least(sdk::numbers("cycle_max_lr", 0, nullptr, "learning rate at the cycle's top", GANNET_PARAM_REQUIRED), 0),
      sdk::number("decay_lr_rate", "0.0", "decay of the lr after the cycle, per decay_step_size"),
      sdk::above(sdk::number("cycle_first_step_size", "2000", "steps up"), 0),
      sdk::at_least(sdk::number("cycle_second_step_size", nullptr, "steps down; null: as many as up", GANNET_PARAM_NULLABLE), 0),
      sdk::at_least(sdk::integer("cycle_first_stair_count", "0", "stairs up; 0: a line"), 0),
      sdk::at_least(sdk::integer("cycle_second_stair_count", nullptr, "stairs down; null: as many as up", GANNET_PARAM_NULLABLE),
                    0),
      sdk::at_least(sdk::number("decay_step_size", "0", "steps per unit of decay after the cycle; 0: none"), 0),
      sdk::boolean("cycle_momentum", "true", "cycle beta1 against the lr, and set beta2 to 0.99"),
      sdk::below(sdk::at_least(sdk::number("cycle_min_mom", "0.8", "beta1 at the cycle's top"), 0), 1),
      sdk::below(sdk::at_least(sdk::number("cycle_max_mom", "0.9", "beta1 at the cycle's ends"), 0), 1),
      sdk::number("decay_mom_rate", "0.0", "growth of beta1 after the cycle, per decay_step_size"),
      kLastBatchIteration,
  };

  OneCycle(const sdk::HostServices& host, const sdk::Params& params, uint32_t groups)
      : Schedule(host, params),
        min_lr_(per_group(params, "cycle_min_lr", groups)),
        max_lr_(per_group(params, "cycle_max_lr", groups)) {
    lr_rate_ = params.number("decay_lr_rate");
    first_ = params.number("cycle_first_step_size");
    second_ = params.has("cycle_second_step_size") ? params.number("cycle_second_step_size") : first_;
    first_stairs_ = static_cast<double>(params.integer("cycle_first_stair_count"));
    second_stairs_ =
        params.has("cycle_second_stair_count") ? static_cast<double>(params.integer("cycle_second_stair_count")) : first_stairs_;
    decay_size_ = params.number("decay_step_size");
    momentum_ = params.boolean("cycle_momentum");
    min_mom_ = params.number("cycle_min_mom");
    max_mom_ = params.number("cycle_max_mom");
    mom_rate_ = params.number("decay_mom_rate");
  }

  // If the optimizer has no momentum, DeepSpeed logs that it is not cycled, and continues.
  uint64_t optional_roles() const { return momentum_ ? sdk::bit_of(GANNET_ROLE_BETA1) | sdk::bit_of(GANNET_ROLE_BETA2) : 0; }
  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const double min = min_lr_.at(query.group), max = max_lr_.at(query.group);
    if (at_start(query.step)) return leaves_start_alone() ? nothing() : with_momentum(lr(min), min_mom_);
    const int64_t i = iteration(query.step);
    const double total = first_ + second_;
    if (static_cast<double>(i) < total) {
      const double f = height(static_cast<double>(i + 1), total);
      return with_momentum(lr(min + (max - min) * f), max_mom_ - (max_mom_ - min_mom_) * f);
    }
    const double units = decay_size_ == 0 ? 0 : (static_cast<double>(i) - total + 1) / decay_size_;
    return with_momentum(lr(min / (1 + lr_rate_ * units)), max_mom_ * (1 + mom_rate_ * units));
  }

 private:
  sdk::ScheduleValues with_momentum(sdk::ScheduleValues value, double momentum) const {
    if (!momentum_) return value;
    return value.set(GANNET_ROLE_BETA1, momentum).set(GANNET_ROLE_BETA2, kBeta2);
  }

  // The height of batch `b` in the cycle: 0 at its ends, 1 at its top.
  double height(double b, double total) const {
    const double in_cycle = std::fmod(b, total);
    const bool rising = in_cycle <= first_;
    const double stairs = rising ? first_stairs_ : second_stairs_;
    if (stairs > 0) return std::floor(rising ? in_cycle * stairs / first_ : (total - in_cycle) * stairs / second_) / stairs;
    const double x = 1 + b / total - std::floor(1 + b / total);
    const double top = first_ / total;
    return x <= top ? x / top : (x - 1) / (top - 1);
  }

  std::vector<double> min_lr_, max_lr_;  // one per group
  double lr_rate_, first_, second_, first_stairs_, second_stairs_, decay_size_;
  double min_mom_, max_mom_, mom_rate_;
  bool momentum_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/onecycle", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::OneCycle>("OneCycle", "1.0.0",
                                                                    "one cycle of lr and momentum, then decay"))
