// cosine: a linear warm-up, then num_cycles waves of a cosine, half a wave by default. Beyond total_num_steps the cosine
// continues.
#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class Cosine : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kTotalSteps, kWarmupSteps,
      sdk::at_least(sdk::number("num_cycles", "0.5", "waves of the cosine; 0.5: from the group's own rate down to 0"), 0)};

  Cosine(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params, total_in(params)), cycles_(params.number("num_cycles")) {}

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const int64_t i = index(query);
    return rate(own_rate(query) * (is_warming_up(i) ? warmup(i) : std::max(0.0, half_cosine(cycles_ * 2 * progress(query, i)))));
  }

 private:
  double cycles_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/cosine", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::Cosine>("cosine", "1.0.0", "linear warm-up, then a cosine down to 0"))
