// WarmupLR: lr_i = min + (max - min) warmup(i), then constant. With repeat_first_step, updates 0 and 1 both run at the
// minimum: index 0 is set at construction, index 1 has i = 0.
#include "schedulers/common/warmup.h"

namespace gannet::schedulers {
namespace {

class WarmupLr : public Schedule {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::numbers("warmup_min_lr", 0, "0.0", "learning rate to start from"), 0),
      sdk::at_least(
          sdk::numbers("warmup_max_lr", 0, nullptr, "learning rate to reach; null: the group's own", GANNET_PARAM_NULLABLE), 0),
      Warmup::kNumSteps,
      Warmup::kType,
      Warmup::kRepeats,
      kLastBatchIteration,
  };

  WarmupLr(const sdk::HostServices& host, const sdk::Params& params, uint32_t groups)
      : Schedule(host, params),
        warmup_(host, params, params.boolean("repeat_first_step")),
        min_lr_(per_group(params, "warmup_min_lr", groups)) {
    if (params.has("warmup_max_lr")) max_lr_ = per_group(params, "warmup_max_lr", groups);
  }

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const double min = min_lr_.at(query.group);
    if (at_start(query.step) && leaves_start_alone()) return nothing();
    if (at_start(query.step) && warmup_.repeats_first_step()) return lr(min);
    const double max = max_lr_.empty() ? sdk::base_value(query, GANNET_ROLE_LEARNING_RATE) : max_lr_.at(query.group);
    return lr(min + (max - min) * warmup_.at(warmup_.iteration(iteration(query.step))));
  }

 private:
  Warmup warmup_;
  std::vector<double> min_lr_, max_lr_;  // one per group; if max_lr_ is empty, the group's own lr is the maximum
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/warmuplr", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::WarmupLr>("WarmupLR", "1.0.0",
                                                                    "warm-up, then a constant learning rate"))
