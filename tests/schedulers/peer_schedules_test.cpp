// The plugins beside transformers' get_scheduler and DeepSpeed's own classes, at every update: transformers_schedules.json and
// deepspeed_schedules.json, which the scripts write_*.py made.
#include <gannet/fill_auto.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/models.h"
#include "schedulers/schedule_under_test.h"

namespace gannet::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json read_json(const std::string& name) {
  std::ifstream in(GANNET_SOURCE_DIR "/tests/schedulers/" + name);
  return json::parse(in);
}

// Roundings: a cosine, a root and a few products.
double rounding(double scale) { return 8 * std::numeric_limits<double>::epsilon() * scale; }

Value value_of(const json& found) {
  if (found.is_boolean()) return found.get<bool>();
  if (found.is_number_integer()) return found.get<int64_t>();
  if (found.is_number()) return found.get<double>();
  if (found.is_string()) return found.get<std::string>();
  if (found.is_null()) return {};
  Dict dict;
  for (const auto& [name, part] : found.items()) dict[name] = value_of(part);
  return dict;
}

TEST(SchedulesOfTransformers, GiveItsRatesAtEveryUpdate) {
  size_t compared = 0;
  const json cases = read_json("transformers_schedules.json");
  for (const auto& [name, each] : cases.items()) {
    const Dict arguments = value_of(each.at("arguments")).as_dict();
    Config config("{}");
    fill_auto(config, arguments, {});
    const ScheduleUnderTest schedule(config.get("scheduler.type").value.as_string(),
                                     config.get("scheduler.params").value.as_dict());
    const double own = arguments.find("learning_rate")->as_number();
    const auto rates = each.at("rates").get<std::vector<double>>();
    for (size_t i = rates.size(); i-- > 0; ++compared)  // a pure function: any order
      EXPECT_NEAR(schedule.lr(i, 0, own), rates[i], rounding(own)) << name << " update " << i + 1;
    for (size_t i = 0; i < rates.size(); ++i) EXPECT_EQ(schedule.lr(i, 0, own), schedule.lr(i, 0, own)) << name;
  }
  EXPECT_GT(compared, 500u);
}

// The trap: construction sets a rate, and the first step sets it again.
TEST(SchedulesOfDeepSpeed, GiveTheRateThatEachUpdateOfItsEngineUses) {
  const json cases = read_json("deepspeed_schedules.json");
  for (const auto& [name, each] : cases.items()) {
    const double own = each.at("lr").get<double>();
    const std::string type = each.at("type").get<std::string>();
    const Dict params = value_of(each.at("params")).as_dict();
    const ScheduleUnderTest schedule(type, params);
    Dict config = config_with({});
    config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", own}}}};
    config["scheduler"] = Dict{{"type", type}, {"params", params}};
    auto engine = initialize(make_net(), {.config = config}).engine;
    const auto rates = each.at("rates").get<std::vector<double>>();
    for (size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(schedule.lr(i, 0, own), rates[i], rounding(own)) << name << " update " << i + 1;
      EXPECT_NEAR(engine->get_lr()[0], rates[i], rounding(own)) << name << " update " << i + 1 << " of an engine";
      auto [x, y] = make_batch(static_cast<int64_t>(i), 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
  }
  EXPECT_GE(cases.size(), 6u);
}

TEST(SchedulesOfTransformers, AGroupWithARateOfItsOwnEndsAtTheSameMinimum) {
  const Dict params{{"total_num_steps", 10}, {"min_lr", 0.01}};
  const ScheduleUnderTest cosine("cosine_with_min_lr", params, 2);
  EXPECT_DOUBLE_EQ(cosine.lr(10, 0, 0.1), 0.01);
  EXPECT_DOUBLE_EQ(cosine.lr(10, 1, 0.4), 0.01);
  EXPECT_DOUBLE_EQ(cosine.lr(0, 1, 0.4), 0.4);
  const ScheduleUnderTest line("polynomial", Dict{{"total_num_steps", 10}, {"lr_end", 0.02}}, 2);
  EXPECT_DOUBLE_EQ(line.lr(5, 1, 0.42), 0.22);
  EXPECT_DOUBLE_EQ(line.lr(10, 0, 0.1), 0.02);
  EXPECT_EQ(line.lr(3, 0, 0), 0) << "a group that does not learn";
}

std::string refusal(const std::string& type, const Dict& params) {
  try {
    ScheduleUnderTest(type, params).lr(0);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(SchedulesOfTransformers, WhatDoesNotFitTogetherIsRefused) {
  const Dict total{{"total_num_steps", 10}};
  EXPECT_THAT(refusal("cosine_with_min_lr", total), HasSubstr("neither min_lr nor min_lr_rate"));
  EXPECT_THAT(refusal("cosine_warmup_with_min_lr", Dict{{"total_num_steps", 10}, {"min_lr", 0.1}, {"min_lr_rate", 0.1}}),
              HasSubstr("both given"));
  EXPECT_THAT(refusal("warmup_stable_decay", Dict{{"num_decay_steps", 3}}), HasSubstr("num_stable_steps nor total_num_steps"));
  EXPECT_THAT(refusal("polynomial", Dict{{"total_num_steps", 10}, {"lr_end", 0.2}}), HasSubstr("not below the learning rate"));
}

TEST(SchedulesOfTransformers, TheStableStageIsWhatTheOthersLeaveOfTheRun) {
  const Dict stages{{"warmup_num_steps", 4}, {"num_decay_steps", 6}};
  Dict with_total = stages;
  with_total["total_num_steps"] = 30;
  ScheduleUnderTest of_config("warmup_stable_decay", stages);
  of_config.total_steps = 30;  // gannet.total_steps
  const ScheduleUnderTest of_params("warmup_stable_decay", with_total);
  for (uint64_t i = 0; i < 32; ++i) EXPECT_EQ(of_config.lr(i), of_params.lr(i)) << i;
  EXPECT_EQ(of_config.lr(23), 0.1);
  EXPECT_LT(of_config.lr(25), 0.1);
}

TEST(SchedulesOfTransformers, StagesThatDoNotAddUpToTheRunAreSaid) {
  const ScheduleUnderTest late("cosine", Dict{{"total_num_steps", 5}, {"warmup_num_steps", 10}});
  EXPECT_THAT(late.host.logged, ::testing::ElementsAre(HasSubstr("total_num_steps 5 is less than warmup_num_steps 10")));
  const ScheduleUnderTest stages(
      "warmup_stable_decay",
      Dict{{"total_num_steps", 30}, {"warmup_num_steps", 4}, {"num_stable_steps", 5}, {"num_decay_steps", 6}});
  EXPECT_THAT(stages.host.logged, ::testing::ElementsAre(HasSubstr("are 15 updates, and total_num_steps is 30")));
}

}  // namespace
}  // namespace gannet::test
