#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "schedulers/schedule_under_test.h"

namespace gannet::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Row {
  std::string name;
  Dict params;
  std::vector<double> lrs;  // by index: 0 at construction, j after j steps
};

// The results of DeepSpeed's own classes. base lr 0.1.
std::vector<Row> rows() {
  const Dict warm{{"warmup_max_lr", 0.1}, {"warmup_num_steps", 10}};
  const Dict linear{{"warmup_max_lr", 0.1}, {"warmup_num_steps", 10}, {"warmup_type", "linear"}};
  return {
      {"WarmupLR", warm, {0, 0, .030103, .047712, .060206, .069897, .077815, .084510, .090309, .095424, .1, .1, .1}},
      {"WarmupLR", linear, {0, 0, .01, .02, .03, .04, .05, .06, .07, .08, .09, .1, .1}},
      {"WarmupLR", Dict{{"warmup_max_lr", 0.1}, {"warmup_num_steps", 1}}, {0, 0, .1, .1}},
      {"WarmupLR", Dict{{"warmup_num_steps", 10}, {"warmup_max_lr", nullptr}}, {0, 0, .030103, .047712}},
      {"WarmupDecayLR",
       Dict{{"total_num_steps", 20}, {"warmup_max_lr", 0.1}, {"warmup_num_steps", 10}, {"warmup_type", "linear"}},
       {0, 0, .01, .02, .03, .04, .05, .06, .07, .08, .09, .1, .09, .08, .07, .06, .05, .04, .03, .02, .01, 0, 0}},
      {"WarmupCosineLR",
       Dict{{"total_num_steps", 20}, {"warmup_num_steps", 10}, {"warmup_type", "linear"}},
       {0,       0,       .01,     .02,     .03,     .04,     .05,     .06,     .07,     .08,  .09,
        .097553, .090452, .079391, .065454, .050005, .034556, .020619, .009558, .002457, 1e-5, 1e-5}},
      {"LRRangeTest", Dict{{"lr_range_test_min_lr", 1e-3}, {"lr_range_test_step_size", 2}}, {.001, .0015, .002, .0025}},
      {"LRRangeTest",
       Dict{{"lr_range_test_min_lr", 1e-3}, {"lr_range_test_step_size", 2}, {"lr_range_test_staircase", true}},
       {.001, .001, .002, .002, .003}},
      {"OneCycle",
       Dict{{"cycle_min_lr", .01},
            {"cycle_max_lr", .1},
            {"cycle_first_step_size", 5},
            {"cycle_second_step_size", 5},
            {"decay_step_size", 1},
            {"decay_lr_rate", .5}},
       {.01, .028, .046, .064, .082, .1, .082, .064, .046, .028, .01, .006667, .005, .004, .003333}},
      {"OneCycle",
       Dict{{"cycle_min_lr", .01}, {"cycle_max_lr", .1}, {"cycle_first_step_size", 4}, {"cycle_first_stair_count", 2}},
       {.01, .01, .055, .055, .1, .055, .055, .01, .01}},
  };
}

TEST(Schedules, GiveTheReferencesValues) {
  for (const auto& row : rows()) {
    const ScheduleUnderTest schedule(row.name, row.params);
    for (size_t j = 0; j < row.lrs.size(); ++j)
      EXPECT_NEAR(schedule.lr(j), row.lrs[j], 5.1e-7) << row.name << " index " << j;  // the rows have six digits
  }
}

TEST(Schedules, ArePureFunctionsOfTheStep) {
  for (const auto& row : rows()) {
    const ScheduleUnderTest schedule(row.name, row.params);
    std::vector<double> forward, backward;
    for (uint64_t j = 0; j < 30; ++j) forward.push_back(schedule.lr(j));
    for (uint64_t j = 30; j-- > 0;) backward.insert(backward.begin(), schedule.lr(j));
    EXPECT_EQ(forward, backward) << row.name;
  }
}

TEST(Schedules, WarmupRisesThenStaysAndDecayFallsToTheMinimum) {
  for (const char* type : {"log", "linear"}) {
    const Dict common{{"warmup_min_lr", .001}, {"warmup_max_lr", .01}, {"warmup_num_steps", 100}, {"warmup_type", type}};
    const ScheduleUnderTest constant("WarmupLR", common);
    Dict with_total = common;
    with_total["total_num_steps"] = 300;
    const ScheduleUnderTest decay("WarmupDecayLR", with_total);
    for (uint64_t j = 1; j < 400; ++j) {
      EXPECT_GE(constant.lr(j), constant.lr(j - 1));
      if (j > 101) EXPECT_DOUBLE_EQ(constant.lr(j), .01);
      if (j <= 101) EXPECT_EQ(decay.lr(j), constant.lr(j));
      if (j > 102) EXPECT_LE(decay.lr(j), decay.lr(j - 1));
      if (j >= 301) EXPECT_EQ(decay.lr(j), .001);
    }
  }
}

TEST(Schedules, CosineReachesOneAfterALogWarmupAndEndsAtItsRatio) {
  const ScheduleUnderTest schedule(
      "WarmupCosineLR",
      Dict{{"total_num_steps", 50}, {"warmup_num_steps", 10}, {"cos_min_ratio", 0.1}, {"warmup_min_ratio", 0.2}});
  EXPECT_EQ(schedule.lr(0), 0);  // not base * warmup_min_ratio
  EXPECT_DOUBLE_EQ(schedule.lr(1), 0.02);
  EXPECT_DOUBLE_EQ(schedule.lr(10), 0.1);   // i = N - 1
  EXPECT_DOUBLE_EQ(schedule.lr(50), 0.01);  // i = total - 1
  EXPECT_DOUBLE_EQ(schedule.lr(500), 0.01);
  EXPECT_DOUBLE_EQ(schedule.lr(10, 0, 3.0), 3.0);  // of the group's own lr
}

TEST(Schedules, OneCycleMovesBeta1AgainstTheLrAndSetsBeta2) {
  const Dict params{
      {"cycle_min_lr", .01}, {"cycle_max_lr", .1}, {"cycle_first_step_size", 5}, {"decay_step_size", 2}, {"decay_mom_rate", .5}};
  const ScheduleUnderTest schedule("OneCycle", params);
  const uint32_t all = 1u << GANNET_ROLE_LEARNING_RATE | 1u << GANNET_ROLE_BETA1 | 1u << GANNET_ROLE_BETA2;
  for (uint64_t j : {0, 1, 5, 10, 14}) {
    EXPECT_EQ(schedule.at(j).roles, all);
    EXPECT_EQ(schedule.at(j).beta2, 0.99);
  }
  EXPECT_DOUBLE_EQ(schedule.at(0).beta1, 0.8);  // cycle_min_mom at construction, then near cycle_max_mom
  EXPECT_DOUBLE_EQ(schedule.at(1).beta1, 0.88);
  EXPECT_DOUBLE_EQ(schedule.at(5).beta1, 0.8);
  EXPECT_DOUBLE_EQ(schedule.at(10).beta1, 0.9);
  EXPECT_DOUBLE_EQ(schedule.at(12).beta1, 0.9 * 1.5);  // grows, even past 1
  EXPECT_DOUBLE_EQ(schedule.at(12).lr, 0.01);          // decay_lr_rate is 0
  Dict fixed = params;
  fixed["cycle_momentum"] = false;
  EXPECT_EQ(ScheduleUnderTest("OneCycle", fixed).at(3).roles, 1u << GANNET_ROLE_LEARNING_RATE);
}

TEST(Schedules, OneCycleWithoutASecondHalfRisesAndThenDecays) {
  const ScheduleUnderTest schedule(
      "OneCycle", Dict{{"cycle_min_lr", .01}, {"cycle_max_lr", .1}, {"cycle_first_step_size", 4}, {"cycle_second_step_size", 0}});
  EXPECT_DOUBLE_EQ(schedule.lr(3), .01 + .09 * .75);
  EXPECT_DOUBLE_EQ(schedule.lr(4), .01);  // the cycle's end is its beginning
  EXPECT_DOUBLE_EQ(schedule.lr(9), .01);
}

TEST(Schedules, ListsGiveEachGroupItsOwnBoundAndNumbersAreForAll) {
  const ScheduleUnderTest schedule("WarmupLR",
                                   Dict{{"warmup_min_lr", .001}, {"warmup_max_lr", List{.1, .2}}, {"warmup_num_steps", 2}}, 2);
  EXPECT_EQ(schedule.lr(0, 1), .001);
  EXPECT_DOUBLE_EQ(schedule.lr(9, 0), .1);
  EXPECT_DOUBLE_EQ(schedule.lr(9, 1), .2);
  const ScheduleUnderTest own("WarmupLR", Dict{{"warmup_num_steps", 2}}, 2);
  EXPECT_EQ(own.lr(9, 0, .3), .3);
  EXPECT_EQ(own.lr(9, 1, .4), .4);
}

TEST(Schedules, AListOfTheWrongLengthIsAnErrorThatCounts) {
  const std::vector<std::pair<std::string, Dict>> cases = {
      {"WarmupLR", Dict{{"warmup_max_lr", List{.1, .2}}}},
      {"WarmupDecayLR", Dict{{"total_num_steps", 9}, {"warmup_min_lr", List{.1, .2}}}},
      {"LRRangeTest", Dict{{"lr_range_test_min_lr", List{.1, .2}}}},
      {"OneCycle", Dict{{"cycle_min_lr", List{.1, .2}}, {"cycle_max_lr", .1}}}};
  for (const auto& [name, params] : cases) {
    try {
      ScheduleUnderTest schedule(name, params, 3);
      FAIL() << name;
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected 3 values for '"));
      EXPECT_THAT(error.what(), HasSubstr("', got 2"));
    }
  }
}

TEST(Schedules, AContinuedOneLeavesTheStartAloneAndGoesOnFromItsIteration) {
  for (const auto& row : rows()) {
    Dict params = row.params;
    params["last_batch_iteration"] = 3;
    const ScheduleUnderTest continued(row.name, params), fresh(row.name, row.params);
    EXPECT_EQ(continued.at(0).roles, 0u) << row.name;
    for (uint64_t j = 1; j < 10; ++j) EXPECT_EQ(continued.lr(j), fresh.lr(j + 4)) << row.name;
  }
}

TEST(Schedules, ThoseOfTransformersTakeTheRunsLengthWhereTheirParamsDoNotSayIt) {
  for (const auto& [name, own] : {std::pair<const char*, Dict>{"cosine", {}},
                                  {"cosine_with_restarts", Dict{{"num_cycles", 2}}},
                                  {"cosine_with_min_lr", Dict{{"min_lr", 1e-3}}},
                                  {"cosine_warmup_with_min_lr", Dict{{"min_lr", 1e-3}}},
                                  {"polynomial", {}}}) {
    Dict with_total = own;
    with_total["total_num_steps"] = 40;
    const ScheduleUnderTest told(name, with_total);
    ScheduleUnderTest of_run(name, own);
    of_run.total_steps = 40;
    for (const uint64_t step : {0, 1, 17, 39, 40, 55}) EXPECT_EQ(of_run.lr(step), told.lr(step)) << name << ' ' << step;
    ScheduleUnderTest both(name, with_total);
    both.total_steps = 50;
    EXPECT_EQ(both.lr(17), told.lr(17)) << name << ": the params come first";
    const auto refused = [](ScheduleUnderTest& schedule) {
      try {
        schedule.lr(0);
        return std::string("nothing");
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
    };
    of_run.is_of_2_0 = true;
    EXPECT_THAT(refused(of_run), HasSubstr("the length of the run is not known")) << name << ": a host of 2.0 does not say it";
    of_run.is_of_2_0 = false;
    of_run.total_steps = 0;
    EXPECT_THAT(refused(of_run), HasSubstr("give it, or set gannet.total_steps")) << name;
  }
}

TEST(Schedules, QuirksAreSaid) {
  const ScheduleUnderTest odd("WarmupLR", Dict{{"warmup_type", "cubic"}, {"warmup_max_lr", .1}, {"warmup_num_steps", 10}});
  EXPECT_THAT(odd.host.logged, ElementsAre(HasSubstr("warmup_type 'cubic' is neither log nor linear")));
  EXPECT_NEAR(odd.lr(2), .030103, 1e-6);
  for (const char* name : {"WarmupDecayLR", "WarmupCosineLR"}) {
    const ScheduleUnderTest early(name, Dict{{"total_num_steps", 5}, {"warmup_num_steps", 10}});
    EXPECT_THAT(early.host.logged, ElementsAre(HasSubstr("total_num_steps 5 is less than warmup_num_steps 10")));
  }
}

}  // namespace
}  // namespace gannet::test
