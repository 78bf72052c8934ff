// cosine_with_min_lr: a linear warm-up, then a cosine down to min_lr. Beyond total_num_steps the cosine continues.
#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class CosineWithMinLr : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kTotalSteps, kWarmupSteps, sdk::at_least(sdk::number("num_cycles", "0.5", "waves of the cosine; 0.5: one fall"), 0),
      Least::kRate, Least::kRatio};

  CosineWithMinLr(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params, total_in(params)), cycles_(params.number("num_cycles")), least_(params) {}

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const int64_t i = index(query);
    const double own = own_rate(query);
    if (is_warming_up(i)) return rate(own * warmup(i));
    const double least = least_.ratio(own);
    return rate(own * std::max(0.0, half_cosine(cycles_ * 2 * progress(query, i)) * (1 - least) + least));
  }

 private:
  double cycles_;
  Least least_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/cosine_with_min_lr", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::CosineWithMinLr>("cosine_with_min_lr", "1.0.0",
                                                                           "linear warm-up, then a cosine down to a minimum"))
