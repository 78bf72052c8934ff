// warmup_stable_decay: three stages, each with its own number of updates: a warm-up to the group's
// own rate, a constant rate, and a decay to min_lr_ratio.
#include <optional>

#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class WarmupStableDecay : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kWarmupSteps,
      sdk::at_least(sdk::integer("num_decay_steps", nullptr, "updates of the decay", GANNET_PARAM_REQUIRED), 0),
      sdk::at_least(sdk::integer("num_stable_steps", nullptr,
                                 "updates at the group's own rate; null: what the other stages leave of total_num_steps",
                                 GANNET_PARAM_NULLABLE),
                    0),
      sdk::at_least(sdk::integer("total_num_steps", nullptr,
                                 "updates of the whole run, where num_stable_steps is not given; null: gannet.total_steps",
                                 GANNET_PARAM_NULLABLE),
                    1),
      sdk::text("warmup_type", "\"linear\"", "linear|cosine|1-sqrt", "curve of the warm-up"),
      sdk::text("decay_type", "\"cosine\"", "linear|cosine|1-sqrt", "curve of the decay"),
      sdk::at_most(sdk::at_least(sdk::number("min_lr_ratio", "0", "ratio of the own rate to begin and to end at"), 0), 1),
      sdk::at_least(sdk::number("num_cycles", "0.5", "waves of a cosine decay; 0.5: one fall"), 0)};

  WarmupStableDecay(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params),
        decay_(params.integer("num_decay_steps")),
        warmup_type_(params.text("warmup_type")),
        decay_type_(params.text("decay_type")),
        least_(params.number("min_lr_ratio")),
        cycles_(params.number("num_cycles")) {
    if (params.has("num_stable_steps")) stable_ = params.integer("num_stable_steps");
    total_ = total_in(params);
    const int64_t stages = warmup_steps() + stable_.value_or(0) + decay_;
    if (!stable_ && total_ > 0 && stages > total_)
      warn("warmup_num_steps and num_decay_steps are more than total_num_steps " + std::to_string(total_) +
           ": the decay begins within the warm-up");
    if (stable_ && total_ > 0 && total_ != stages)
      warn("warmup_num_steps, num_stable_steps and num_decay_steps are " + std::to_string(stages) +
           " updates, and total_num_steps is " + std::to_string(total_) + ", which has no effect");
  }

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    return rate(own_rate(query) * factor(index(query), stable_steps(query)));
  }

 private:
  // Returns the configured number, or else the run's updates that remain after the other stages.
  int64_t stable_steps(const gannet_schedule_query& query) const {
    if (stable_) return *stable_;
    const int64_t total = total_of(total_, query);
    if (total == 0)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT,
                         "neither num_stable_steps nor total_num_steps is given, and the length of the run is not known: give "
                         "one of the two, or set gannet.total_steps");
    return total - warmup_steps() - decay_;
  }
  double factor(int64_t i, int64_t stable) const {
    if (is_warming_up(i)) return between(rise(warmup(i)));
    const int64_t in_decay = i - warmup_steps() - stable;
    if (in_decay < 0) return 1;
    if (in_decay >= decay_) return least_;
    return between(fall(static_cast<double>(in_decay) / static_cast<double>(decay_)));
  }
  double between(double curve) const { return std::max(0.0, curve * (1 - least_) + least_); }
  double rise(double x) const {
    return warmup_type_ == "linear" ? x : warmup_type_ == "cosine" ? 0.5 * (1 - std::cos(kPi * x)) : 1 - std::sqrt(1 - x);
  }
  double fall(double x) const {
    return decay_type_ == "linear" ? 1 - x : decay_type_ == "cosine" ? half_cosine(cycles_ * 2 * x) : 1 - std::sqrt(x);
  }

  int64_t decay_, total_;
  std::optional<int64_t> stable_;
  std::string warmup_type_, decay_type_;
  double least_, cycles_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/warmup_stable_decay", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::WarmupStableDecay>("warmup_stable_decay", "1.0.0",
                                                                             "warm-up, a constant learning rate, then decay"))
