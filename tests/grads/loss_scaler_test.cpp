#include "grads/loss_scaler.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gannet {
namespace {

using ::testing::HasSubstr;

// Scales after each of the steps, 'o' clean and 'X' overflow.
std::vector<double> run(LossScaler scaler, const std::string& steps) {
  std::vector<double> scales;
  for (char step : steps) {
    scaler.update(step == 'X');
    scales.push_back(scaler.scale());
  }
  return scales;
}
using Scales = std::vector<double>;

TEST(LossScaler, StartsAtAPowerOfTwo) {
  EXPECT_EQ(LossScaler({}).scale(), 65536);
  EXPECT_EQ(LossScaler({.initial_scale_power = 4}).scale(), 16);
}

// The first doubling comes with update number window + 1, the next ones every window updates.
TEST(LossScaler, DoublesAfterAWindowOfCleanSteps) {
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .window = 3}), "ooooooo"), (Scales{8, 8, 8, 16, 16, 16, 32}));
}

TEST(LossScaler, HalvesAtOnceWithoutHysteresis) {
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .window = 3, .hysteresis = 1}), "XoX"), (Scales{4, 4, 2}));
}

TEST(LossScaler, HalvesWhereACheckpointHasNoHysteresisLeft) {
  for (const int64_t left : {0, -2}) {
    LossScaler scaler({.initial_scale_power = 3, .hysteresis = 3});
    scaler.set_state({.scale = 8, .iteration = 5, .last_overflow_iteration = 4, .hysteresis_left = left});
    EXPECT_EQ(run(scaler, "XX"), (Scales{4, 2})) << left;
  }
}

TEST(LossScaler, HysteresisForgivesOverflowsUntilItIsUsedUp) {
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .hysteresis = 3}), "XXXX"), (Scales{8, 8, 4, 2}));
}

TEST(LossScaler, HysteresisOnceUsedUpComesBackWithADoublingOnly) {
  // X: 1 left. A clean step restores nothing; the next X halves. Window + 1 clean steps double the scale, and hysteresis is back.
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .window = 3, .hysteresis = 2}), "XoXooooXX"),
            (Scales{8, 8, 4, 4, 4, 4, 8, 8, 4}));
}

TEST(LossScaler, ConsecutiveHysteresisComesBackWithEveryCleanStep) {
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .window = 100, .hysteresis = 2, .consecutive_hysteresis = true}), "XoXoXX"),
            (Scales{8, 8, 8, 8, 8, 4}));
}

TEST(LossScaler, CountsTheWindowFromTheLastOverflow) {
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .window = 2, .hysteresis = 1}), "oXooooo"), (Scales{8, 4, 4, 4, 8, 8, 16}));
}

TEST(LossScaler, OverflowAtTheSmallestScaleIsAnErrorThatChangesNothing) {
  LossScaler scaler({.initial_scale_power = 1, .hysteresis = 1, .min_scale = 1});
  scaler.update(true);
  const LossScaler before = scaler;
  try {
    scaler.update(true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLossScaleExhausted);
    EXPECT_THAT(error.what(), HasSubstr("smallest loss scale, 1"));
  }
  EXPECT_EQ(scaler, before);
}

TEST(LossScaler, NeverFallsBelowTheMinimum) {
  EXPECT_EQ(run(LossScaler({.initial_scale_power = 3, .hysteresis = 1, .min_scale = 6}), "X"), (Scales{6}));
}

TEST(LossScaler, AFixedScaleNeverChangesNorThrows) {
  LossScaler scaler = LossScaler::fixed(128);
  EXPECT_FALSE(scaler.is_dynamic());
  for (int i = 0; i < 5000; ++i) scaler.update(i % 2 == 0);
  EXPECT_EQ(scaler.scale(), 128);
}

TEST(LossScaler, GoesOnExactlyFromASavedState) {
  const std::string steps = "oooXooXXoooooooXoooXoo";
  const LossScaler::Options options{.initial_scale_power = 5, .window = 3, .hysteresis = 2};
  for (size_t cut = 0; cut < steps.size(); ++cut) {
    LossScaler whole(options), first(options), second(options);
    for (char step : steps) whole.update(step == 'X');
    for (size_t i = 0; i < cut; ++i) first.update(steps[i] == 'X');
    second.set_state(first.state());
    for (size_t i = cut; i < steps.size(); ++i) second.update(steps[i] == 'X');
    EXPECT_EQ(second, whole) << cut;
  }
}

}  // namespace
}  // namespace gannet
