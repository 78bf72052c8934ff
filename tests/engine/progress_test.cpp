#include "engine/progress.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gannet {
namespace {

using ::testing::HasSubstr;
using State = Progress::State;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Progress backwarded() {
  Progress progress;
  progress.end_forward();
  progress.begin_backward();
  progress.end_backward();
  return progress;
}

TEST(Progress, AMicroBatchOfSeveralGoesBackToIdleAndIsCounted) {
  Progress progress;
  EXPECT_EQ(progress.state(), State::kIdle);
  EXPECT_FALSE(progress.is_boundary(2));
  progress.end_forward();
  EXPECT_EQ(progress.state(), State::kForwarded);
  progress.begin_backward();
  EXPECT_EQ(progress.state(), State::kBackward);
  progress.end_backward();
  EXPECT_EQ(progress.state(), State::kBackwarded);
  progress.end_micro_batch();
  EXPECT_EQ(progress.state(), State::kIdle);
  EXPECT_EQ(progress.micro_in_step, 1);
  EXPECT_EQ(progress.micro_steps, 1);
  EXPECT_EQ(progress.global_steps, 0);
  EXPECT_TRUE(progress.has_begun_step());
  EXPECT_TRUE(progress.is_boundary(2)) << "the second of two";
}

TEST(Progress, AStepIsCountedWithItsSamplesAndItsOutcome) {
  Progress progress = backwarded();
  progress.begin_boundary();
  EXPECT_EQ(progress.state(), State::kBoundary);
  EXPECT_FALSE(progress.holds_micro_batch());
  progress.begin_update();
  EXPECT_EQ(progress.state(), State::kUpdating);
  progress.end_update();
  progress.count_applied();
  progress.end_step(16);
  EXPECT_EQ(progress.state(), State::kIdle);
  EXPECT_EQ(progress.global_steps, 1);
  EXPECT_EQ(progress.micro_steps, 1);
  EXPECT_EQ(progress.micro_in_step, 0);
  EXPECT_EQ(progress.global_samples, 16);
  EXPECT_EQ(progress.applied_steps, 1);
  progress.count_skipped();
  progress.count_skipped();
  EXPECT_EQ(progress.consecutive_skips, 2);
  progress.count_applied();
  EXPECT_EQ(progress.consecutive_skips, 0);
  EXPECT_EQ(progress.skipped_steps, 2);
}

TEST(Progress, ASecondForwardAndASecondBackwardBelongToTheMicroBatch) {
  Progress progress = backwarded();
  progress.end_forward();
  EXPECT_EQ(progress.state(), State::kBackwarded);
  progress.begin_backward();
  EXPECT_EQ(progress.state(), State::kBackward);
  progress.end_backward();
  progress.end_micro_batch();
  EXPECT_EQ(progress.micro_steps, 1);
}

TEST(Progress, CallsInTheWrongOrderAreErrorsThatSayWhatIsMissing) {
  Progress progress;
  EXPECT_THAT(error_of([&] { progress.check_backward("backward()", true); }),
              HasSubstr("backward() was called before forward()"));
  EXPECT_THAT(error_of([&] { progress.check_backward("scale()", false); }), HasSubstr("scale() was called in evaluation mode"));
  EXPECT_THAT(error_of([&] { progress.check_step(false); }), HasSubstr("step() was called before forward() and backward()"));
  progress.end_forward();
  EXPECT_EQ(error_of([&] { progress.check_backward("backward()", true); }), "no error");
  EXPECT_THAT(error_of([&] { progress.check_step(false); }),
              HasSubstr("step() was called before backward(), or after zero_grad()"));
  EXPECT_THAT(error_of([&] { progress.check_step(true); }), HasSubstr("step() was called after scale()"));
  progress.begin_backward();
  EXPECT_THAT(error_of([&] { progress.check_step(false); }), HasSubstr("step() was called after scale()"));
  progress.end_backward();
  EXPECT_EQ(error_of([&] { progress.check_step(true); }), "no error") << "another loss's backward has ended";
}

TEST(Progress, DroppedGradientsLeaveTheForward) {
  Progress progress = backwarded();
  progress.end_micro_batch();
  progress.drop_gradients();
  EXPECT_EQ(progress.state(), State::kIdle);
  EXPECT_EQ(progress.micro_in_step, 0);
  progress.end_forward();
  progress.begin_backward();
  progress.drop_gradients();
  EXPECT_EQ(progress.state(), State::kForwarded);
  EXPECT_FALSE(progress.has_begun_step());
}

TEST(Progress, AnErrorRestartsTheStepAndIsCounted) {
  Progress progress = backwarded();
  progress.end_micro_batch();
  progress.end_forward();
  progress.begin_backward();
  progress.restart_step();
  EXPECT_EQ(progress.state(), State::kIdle);
  EXPECT_EQ(progress.micro_in_step, 0);
  EXPECT_EQ(progress.micro_steps, 1) << "it ended";
  EXPECT_EQ(progress.caught_errors, 1);
}

TEST(Progress, TornParametersStayTornUntilALoadMendsThem) {
  Progress progress = backwarded();
  progress.begin_boundary();
  progress.begin_update();
  progress.tear("step 1 failed");
  EXPECT_TRUE(progress.is_updating());
  progress.restart_step();
  EXPECT_EQ(progress.state(), State::kTorn);
  EXPECT_EQ(progress.torn(), "step 1 failed");
  progress.drop_gradients();
  EXPECT_EQ(progress.state(), State::kTorn);
  progress.mend();
  EXPECT_EQ(progress.state(), State::kIdle);
}

TEST(Progress, ALoadOfWeightsAloneKeepsTheMicroBatch) {
  Progress progress = backwarded();
  progress.tear("a load failed partway");
  EXPECT_EQ(progress.state(), State::kTorn);
  progress.mend();
  EXPECT_EQ(progress.state(), State::kBackwarded);
}

TEST(Progress, TheProgramMayForceTheBoundaryAndChangeTheNextStepsAccumulation) {
  Progress progress;
  progress.forced_boundary = true;
  EXPECT_TRUE(progress.is_boundary(4));
  progress.forced_boundary = false;
  EXPECT_FALSE(progress.is_boundary(1));
  progress.forced_boundary.reset();
  EXPECT_TRUE(progress.is_boundary(1));
  EXPECT_EQ(progress.take_accumulation(), std::nullopt);
  progress.accumulation_from_next = 3;
  EXPECT_EQ(progress.take_accumulation(), 3);
  EXPECT_EQ(progress.take_accumulation(), std::nullopt);
}

TEST(Progress, ATransitionThatTheEngineGetsWrongIsAnInternalError) {
  Progress progress;
  EXPECT_THAT(error_of([&] { progress.end_micro_batch(); }), HasSubstr("check failed"));
  EXPECT_THAT(error_of([&] { progress.begin_boundary(); }), HasSubstr("check failed"));
  EXPECT_THAT(error_of([&] { progress.begin_update(); }), HasSubstr("check failed"));
  EXPECT_THAT(error_of([&] { progress.end_step(1); }), HasSubstr("check failed"));
  progress = backwarded();
  progress.begin_boundary();
  EXPECT_THAT(error_of([&] { progress.begin_backward(); }), HasSubstr("check failed"));
}

TEST(Progress, IsAValue) {
  Progress one = backwarded(), two = one;
  EXPECT_EQ(one, two);
  two.end_micro_batch();
  EXPECT_NE(one, two);
}

}  // namespace
}  // namespace gannet
