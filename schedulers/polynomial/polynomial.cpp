// polynomial: a linear warm-up, then a power of the remaining fraction of updates, down to lr_end.
#include "schedulers/common/scaled.h"

namespace gannet::schedulers {
namespace {

class Polynomial : public Scaled {
 public:
  static constexpr gannet_param_spec kParams[] = {
      kTotalSteps, kWarmupSteps, sdk::at_least(sdk::number("lr_end", "1e-7", "rate to end at, below the group's own"), 0),
      sdk::at_least(sdk::number("power", "1.0", "exponent; 1: a line"), 0)};

  Polynomial(const sdk::HostServices& host, const sdk::Params& params, uint32_t)
      : Scaled(host, params, total_in(params)), end_(params.number("lr_end")), power_(params.number("power")) {}

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const int64_t i = index(query);
    const double own = own_rate(query);
    if (own == 0) return rate(0);  // the group is frozen
    if (own <= end_)
      throw sdk::Failure(GANNET_INVALID_ARGUMENT,
                         "lr_end " + std::to_string(end_) + " is not below the learning rate of parameter group " +
                             std::to_string(query.group) + ", " + std::to_string(own) + ": give a smaller one");
    if (is_warming_up(i)) return rate(own * warmup(i));
    const double left = 1 - progress(query, i);
    return rate(left < 0 ? end_ : (own - end_) * std::pow(left, power_) + end_);
  }

 private:
  double end_, power_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/polynomial", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::Polynomial>("polynomial", "1.0.0",
                                                                      "linear warm-up, then polynomial decay"))
