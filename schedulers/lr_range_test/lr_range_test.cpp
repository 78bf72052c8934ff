// LRRangeTest (Smith 2017): lr_i = min (1 + rate x), where x is (i + 1) / step_size, or its floor.
#include <cmath>

#include "schedulers/common/schedule.h"

namespace gannet::schedulers {
namespace {

class LrRangeTest : public Schedule {
 public:
  static constexpr gannet_param_spec kParams[] = {
      sdk::at_least(sdk::numbers("lr_range_test_min_lr", 0, "1e-3", "learning rate to start from"), 0),
      sdk::at_least(sdk::integer("lr_range_test_step_size", "2000", "steps per unit of growth"), 1),
      sdk::number("lr_range_test_step_rate", "1.0", "growth per unit"),
      sdk::boolean("lr_range_test_staircase", "false", "grow in stairs instead of along a line"),
      kLastBatchIteration,
  };

  LrRangeTest(const sdk::HostServices& host, const sdk::Params& params, uint32_t groups)
      : Schedule(host, params),
        min_lr_(per_group(params, "lr_range_test_min_lr", groups)),
        size_(static_cast<double>(params.integer("lr_range_test_step_size"))),
        rate_(params.number("lr_range_test_step_rate")),
        staircase_(params.boolean("lr_range_test_staircase")) {}

  sdk::ScheduleValues value(const gannet_schedule_query& query) const {
    const double min = min_lr_.at(query.group);
    if (at_start(query.step)) return leaves_start_alone() ? nothing() : lr(min);
    const double x = static_cast<double>(iteration(query.step) + 1) / size_;
    return lr(min * (1 + rate_ * (staircase_ ? std::floor(x) : x)));
  }

 private:
  std::vector<double> min_lr_;  // one per group
  double size_, rate_;
  bool staircase_;
};

}  // namespace
}  // namespace gannet::schedulers

GANNET_PLUGINS("scheduler/lrrangetest", GANNET_TIER_STABLE,
               gannet::sdk::scheduler<gannet::schedulers::LrRangeTest>("LRRangeTest", "1.0.0",
                                                                       "a growing learning rate, to find the range that works"))
