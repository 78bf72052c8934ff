// WarmupDecayLR: WarmupLR's warm-up, then a linear decay to the minimum at total_num_steps.
#include "schedulers/common/warmup.h"

namespace gannet::schedulers {
namespace {

class WarmupDecayLr : public Schedule {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::integer("total_num_steps", nullptr, "steps of the whole run", GANNET_PARAM_REQUIRED),
      sdk::at_least(sdk::numbers("warmup_min_lr", 0, "0.0", "learning rate to start from and to end at"), 0),
      sdk::at_least(sdk::numbers("warmup_max_lr", 0, "0.001", "learning rate at the end of the warm-up; null: the group's own",
                                 GANNET_PARAM_NULLABLE),
                    0),
      Warmup::kNumSteps,
      Warmup::kType,
      Warmup::kRepeats,
      kLastBatchIteration,
  };

  WarmupDecayLr(const sdk::HostServices& host, const sdk::Params& params, uint32_t groups)
      : Schedule(host, params),
        warmup_(host, params, params.boolean("repeat_first_step")),
        total_(params.integer("total_num_steps")),
        min_lr_(per_group(params, "warmup_min_lr", groups)) {
    if (params.has("warmup_max_lr")) max_lr_ = per_group(params, "warmup_max_lr", groups);
    if (total_ < warmup_.steps())
      warn("total_num_steps " + std::to_string(total_) + " is less than warmup_num_steps " + std::to_string(warmup_.steps()) +
           ": the learning rate falls to its minimum as soon as the warm-up is over");
  }

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const double min = min_lr_.at(query.group);
    if (at_start(query.step) && leaves_start_alone()) return nothing();
    if (at_start(query.step) && warmup_.repeats_first_step()) return lr(min);
    const double max = max_lr_.empty() ? sdk::base_value(query, GANNET_ROLE_LEARNING_RATE) : max_lr_.at(query.group);
    return lr(min + (max - min) * fraction(warmup_.iteration(iteration(query.step))));
  }

 private:
  double fraction(int64_t i) const {
    if (!warmup_.is_over(i)) return warmup_.at(i);
    return std::max(0.0, static_cast<double>(total_ - i) / static_cast<double>(std::max<int64_t>(1, total_ - warmup_.steps())));
  }

  Warmup warmup_;
  int64_t total_;
  std::vector<double> min_lr_, max_lr_;  // one per group; if max_lr_ is empty, the group's own lr is the maximum
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/warmupdecaylr", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::WarmupDecayLr>("WarmupDecayLR", "1.0.0", "warm-up, then linear decay"))
