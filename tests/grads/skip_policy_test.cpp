#include "grads/skip_policy.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grads/check.h"

namespace gannet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SkipPolicy, WithoutALossScaleAStepThatIsNotFiniteIsAnError) {
  const SkipPolicy policy{.max_consecutive = 3};
  EXPECT_THAT(error_of([&] { policy.check_may_skip(7, "the gradient of 'w' is nan at element 0"); }),
              HasSubstr("step 7: the gradient of 'w' is nan at element 0; the step was not taken"));
  const SkipPolicy bf16{.skips = true, .max_consecutive = 3};
  EXPECT_EQ(error_of([&] { bf16.check_may_skip(7, "nan"); }), "no error");
  EXPECT_EQ(bf16.reason(7, "nan", 3, LossScaler::fixed(1)), "step 7 skipped: nan");
  EXPECT_THAT(error_of([&] { bf16.reason(7, "nan", 4, LossScaler::fixed(1)); }),
              AllOf(HasSubstr("nan; it is the 4th in a row"), testing::Not(HasSubstr("loss_scale"))));
}

TEST(SkipPolicy, InHalfPrecisionTheReasonSaysWhatTheLossScaleDoes) {
  const SkipPolicy policy{.skips = true, .is_fp16 = true, .scale_can_mend = true, .max_consecutive = 1};
  LossScaler scaler({.initial_scale_power = 4, .hysteresis = 2});
  EXPECT_EQ(policy.reason(2, "inf", 1, scaler), "step 2 skipped: inf; the loss scale stays 16");
  scaler.update(true);
  EXPECT_EQ(policy.reason(3, "inf", 51, scaler), "step 3 skipped: inf; the loss scale goes from 16 to 8");
  EXPECT_EQ(scaler.scale(), 16) << "the policy changes no scaler";
  const SkipPolicy fixed{.skips = true, .is_fp16 = true, .max_consecutive = 1};
  EXPECT_THAT(error_of([&] { fixed.reason(3, "inf", 2, LossScaler::fixed(128)); }),
              AllOf(HasSubstr("the loss scale stays 128; it is the 2th in a row"),
                    HasSubstr("lower fp16.loss_scale, which is fixed at 128")));
}

TEST(SkipPolicy, ADynamicScaleThatDoesNotFallEndsTheRunAsAStaticOneDoes) {
  const SkipPolicy policy{.skips = true, .is_fp16 = true, .scale_can_mend = true, .max_consecutive = 3};
  const LossScaler slow({.initial_scale_power = 4, .hysteresis = 1000}), falling({.initial_scale_power = 30, .hysteresis = 1});
  EXPECT_THAT(policy.reason(3, "inf", 3, slow), HasSubstr("the loss scale stays 16"));
  EXPECT_THAT(error_of([&] { policy.reason(4, "inf", 4, slow); }),
              ::testing::AllOf(HasSubstr("the loss scale stays 16"), HasSubstr("as in the 3 skipped steps in a row before it"),
                               HasSubstr("lower fp16.hysteresis")));
  EXPECT_THAT(policy.reason(9, "inf", 9, falling), HasSubstr("the loss scale goes from")) << "it may still find one that fits";
}

TEST(ClipFactor, IsFoldedIntoTheFactorThatUnscales) {
  EXPECT_EQ(clip_factor(10, 0, 0.25), 0.25) << "no limit";
  EXPECT_EQ(clip_factor(0.5, 1, 0.25), 0.25) << "below it";
  EXPECT_DOUBLE_EQ(clip_factor(2, 1, 0.25), 0.25 / (2 + 1e-6));
}

}  // namespace
}  // namespace gannet
