// gannet schedule CONFIG --steps N, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "launched.h"

namespace gannet {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

launched::Outcome schedule(const std::string& config, const std::string& arguments) {
  const auto file = std::filesystem::path(testing::TempDir()) / ("schedule_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << config;
  const auto outcome = launched::shell(GANNET_BINARY_DIR "/bin/gannet schedule '" + file.string() + "' " + arguments);
  std::filesystem::remove(file);
  return outcome;
}

const std::string kHead = R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, )";

TEST(ScheduleCommand, PrintsTheLearningRateOfEachStep) {
  const auto outcome = schedule(
      kHead + R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2, "warmup_type": "linear"}}})", "--steps 5");
  EXPECT_EQ(outcome.output, "step,lr\n0,0.0\n1,0.0\n2,0.25\n3,0.5\n4,0.5\n");
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST(ScheduleCommand, RefusesANegativeNumberOfSteps) {
  const auto outcome = schedule(kHead + R"("gradient_clipping": 1.0})", "--steps -3");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("--steps is '-3', and must be a number from 0 to 10000000"));
}

TEST(ScheduleCommand, PrintsTheMomentumOfAScheduleThatHasOne) {
  const auto outcome = schedule(
      kHead +
          R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.25, "cycle_max_lr": 0.5, "cycle_first_step_size": 1,
                 "cycle_min_mom": 0.5, "cycle_max_mom": 0.75}}})",
      "--steps 3");
  EXPECT_EQ(outcome.output, "step,lr,momentum\n0,0.25,0.5\n1,0.5,0.5\n2,0.25,0.75\n");
}

TEST(ScheduleCommand, WithoutAScheduleTheLearningRateIsTheOptimizers) {
  const auto outcome = schedule(kHead + R"("gradient_clipping": 1.0})", "--steps 2");
  EXPECT_EQ(outcome.output, "step,lr\n0,0.5\n1,0.5\n");
}

TEST(ScheduleCommand, SaysThatTheOptimizersLearningRateIsMissingOnlyWhereItIsNeeded) {
  const std::string head = R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2)";
  const auto missing = schedule(head + "}}}", "--steps 4");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, StartsWith("gannet: "));  // and no row
  EXPECT_THAT(missing.output, HasSubstr(": the learning rate of step 2 comes from the optimizer, and the config sets none"));
  const auto bounded = schedule(head + R"(, "warmup_max_lr": 0.5}}})", "--steps 4");
  EXPECT_EQ(bounded.output, "step,lr\n0,0.0\n1,0.0\n2,0.5\n3,0.5\n");
}

TEST(ScheduleCommand, NamesTheParameterThatIsWrongAndWhereItStands) {
  const auto outcome = schedule(kHead + R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_stepz": 2}}})", "--steps 4");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr(".json:1:"));
  EXPECT_THAT(outcome.output, HasSubstr("did you mean 'warmup_num_steps'?"));
}

}  // namespace
}  // namespace gannet
