// WarmupCosineLR: ratios of each group's own lr; a warm-up, then half a cosine down to cos_min_ratio at i = total - 1.
//
// This follows DeepSpeed: the lr at construction is 0 regardless of warmup_min_ratio, and a linear
// warm-up never reaches ratio 1 (it ends at (N-1)/N and the cosine begins one step in).
#include "schedulers/common/warmup.h"

namespace gannet::schedulers {
namespace {

constexpr double kPi = 3.14159265358979323846;

class WarmupCosineLr : public Schedule {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::integer("total_num_steps", nullptr, "steps of the whole run", GANNET_PARAM_REQUIRED),
      sdk::number("warmup_min_ratio", "0.0", "ratio to start from"),
      Warmup::kNumSteps,
      sdk::number("cos_min_ratio", "0.0001", "ratio to end at"),
      Warmup::kType,
      kLastBatchIteration,
  };

  WarmupCosineLr(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Schedule(host, params),
        warmup_(host, params),
        total_(params.integer("total_num_steps")),
        start_(params.number("warmup_min_ratio")),
        end_(params.number("cos_min_ratio")) {
    if (total_ < warmup_.steps())
      warn("total_num_steps " + std::to_string(total_) + " is less than warmup_num_steps " + std::to_string(warmup_.steps()) +
           ": the learning rate falls to its minimum as soon as the warm-up is over");
  }

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    if (at_start(query.step)) return leaves_start_alone() ? nothing() : lr(0);
    return lr(sdk::base_value(query, GANNET_ROLE_LEARNING_RATE) * ratio(iteration(query.step)));
  }

 private:
  double ratio(int64_t i) const {
    if (!warmup_.is_over(i)) return start_ + (1 - start_) * warmup_.at(i);
    const int64_t n = warmup_.steps();
    const double progress = std::min(1.0, static_cast<double>(i - n + 1) / static_cast<double>(std::max<int64_t>(1, total_ - n)));
    return std::max(0.0, end_ + (1 - end_) * (1 + std::cos(kPi * progress)) / 2);
  }

  Warmup warmup_;
  int64_t total_;
  double start_, end_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/warmupcosinelr", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::WarmupCosineLr>("WarmupCosineLR", "1.0.0",
                                                                          "warm-up, then cosine decay"))
