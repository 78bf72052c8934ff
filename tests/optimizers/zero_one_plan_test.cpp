// Which step of 0/1 Adam does what: the functions of the step against DeepSpeed's counters, one step after another.
#include "optimizers/onebit/zero_one_plan.h"

#include <gtest/gtest.h>

namespace gannet::rules {
namespace {

void follow_the_counters(const ZeroOnePlan& plan, uint64_t steps) {
  uint64_t var_interval = 1, var_counter = 0, local_interval = 1, local_counter = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step << ", freeze " << plan.var_freeze_step << ", scalers "
                                    << plan.var_update_scaler << " and " << plan.local_step_scaler << ", clipper "
                                    << plan.local_step_clipper);
    const bool is_local = step > plan.var_freeze_step;
    const bool updates_variance = !is_local && step % var_interval == 0;
    const bool averages_updates = is_local && step % local_interval == 0;
    ASSERT_EQ(plan.is_local(step), is_local);
    ASSERT_EQ(plan.updates_variance(step), updates_variance);
    ASSERT_EQ(plan.averages_updates(step), averages_updates);
    if (!is_local) {
      ASSERT_EQ(plan.var_interval(step), var_interval);
    } else {
      ASSERT_EQ(plan.local_interval(step), local_interval);
    }
    if (updates_variance && ++var_counter == plan.var_update_scaler) {
      var_counter = 0;
      var_interval *= 2;
    }
    if (is_local && ++local_counter == plan.local_step_scaler) {
      local_counter = 0;
      local_interval = std::min(plan.local_step_clipper, 2 * local_interval);
    }
  }
}

TEST(ZeroOnePlan, IsThatOfTheCounters) {
  for (const uint64_t freeze : {1, 2, 17, 1000})
    for (const uint64_t var_scaler : {1, 2, 3, 16, 5000})
      for (const uint64_t local_scaler : {1, 7, 100})
        for (const uint64_t clipper : {1, 3, 16}) follow_the_counters({freeze, var_scaler, local_scaler, clipper}, 2000);
}

TEST(ZeroOnePlan, IsThatOfTheCountersWithTheDefaults) { follow_the_counters({100000, 16, 32678, 16}, 300000); }

TEST(ZeroOnePlan, HasAnAnswerForEveryStep) {
  constexpr uint64_t kLast = uint64_t{1} << 62;
  const ZeroOnePlan early{1, 1, 1, UINT64_C(1) << 40}, late{kLast, 1, 1, 1};
  EXPECT_EQ(early.local_interval(kLast), UINT64_C(1) << 40);
  EXPECT_EQ(late.var_interval(kLast), kLast) << "an update at each power of two";
  EXPECT_TRUE(late.updates_variance(kLast));
}

}  // namespace
}  // namespace gannet::rules
