// cosine_with_restarts: a linear warm-up, then num_cycles half cosines, each of which starts at the
// group's own rate.
#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class CosineWithRestarts : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kTotalSteps, kWarmupSteps, sdk::at_least(sdk::number("num_cycles", "1", "falls from the group's own rate to 0"), 0)};

  CosineWithRestarts(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params, total_in(params)), cycles_(params.number("num_cycles")) {}

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const int64_t i = index(query);
    return rate(own_rate(query) * (is_warming_up(i) ? warmup(i) : after_warmup(progress(query, i))));
  }

 private:
  double after_warmup(double progress) const {
    return progress >= 1 ? 0 : std::max(0.0, half_cosine(std::fmod(cycles_ * progress, 1.0)));
  }
  double cycles_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/cosine_with_restarts", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::CosineWithRestarts>("cosine_with_restarts", "1.0.0",
                                                                              "linear warm-up, then a cosine with hard restarts"))
