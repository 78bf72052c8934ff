// cosine_warmup_with_min_lr: a linear warm-up that begins above 0, then a cosine down to min_lr.
//
// This follows transformers: the warm-up reaches the group's own rate at its last update, the
// cosine begins one update in, and from total_num_steps - 1 on it rises again.
#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class CosineWarmupWithMinLr : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kTotalSteps,
      kWarmupSteps,
      sdk::at_least(sdk::number("num_cycles", "0.5", "waves of the cosine; 0.5: one fall"), 0),
      Least::kRate,
      Least::kRatio,
      sdk::at_least(sdk::number("warmup_lr_rate", nullptr,
                                "ratio of the group's own rate to begin at; null: 1 / warmup_num_steps", GANNET_PARAM_NULLABLE),
                    0)};

  CosineWarmupWithMinLr(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params, total_in(params)), cycles_(params.number("num_cycles")), least_(params) {
    const double steps = static_cast<double>(std::max<int64_t>(1, warmup_steps()));
    const bool is_given = params.has("warmup_lr_rate");
    start_ = is_given ? params.number("warmup_lr_rate") : 1 / steps;
    slope_ = is_given ? (1 - start_) / std::max(1.0, static_cast<double>(warmup_steps() - 1)) : 1 / steps;
  }

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const int64_t i = index(query);
    const double own = own_rate(query);
    if (is_warming_up(i)) return rate(own * (start_ + slope_ * static_cast<double>(i)));
    const double least = least_.ratio(own);
    return rate(own * std::max(0.0, half_cosine(cycles_ * 2 * progress(query, i + 1)) * (1 - least) + least));
  }

 private:
  double cycles_, start_, slope_;
  Least least_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/cosine_warmup_with_min_lr", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::CosineWarmupWithMinLr>(
                   "cosine_warmup_with_min_lr", "1.0.0", "linear warm-up from above 0, then a cosine down to a minimum"))
