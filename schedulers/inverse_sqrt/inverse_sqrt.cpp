// inverse_sqrt: a linear warm-up, then the inverse square root of the number of updates; the
// schedule has no end.
#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class InverseSqrt : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kWarmupSteps,
      sdk::at_least(sdk::integer("timescale", nullptr, "updates; null: warmup_num_steps, or 10000 without a warm-up",
                                 GANNET_PARAM_NULLABLE),
                    1)};

  InverseSqrt(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params),
        timescale_(params.has("timescale") ? params.integer("timescale")
                   : warmup_steps() > 0    ? warmup_steps()
                                           : 10000) {}

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const int64_t i = index(query);
    const double behind = static_cast<double>(i + timescale_ - warmup_steps());
    return rate(own_rate(query) * (is_warming_up(i) ? warmup(i) : 1 / std::sqrt(behind / static_cast<double>(timescale_))));
  }

 private:
  int64_t timescale_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/inverse_sqrt", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::InverseSqrt>("inverse_sqrt", "1.0.0",
                                                                       "linear warm-up, then the inverse square root"))
