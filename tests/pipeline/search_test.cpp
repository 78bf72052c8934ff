// The search for a schedule: never behind a built-in one, within its memory, and the same each time.
#include "pipeline/search.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pipeline/built_in.h"
#include "pipeline/validate.h"

namespace gannet::pipeline {
namespace {

using testing::HasSubstr;

double peak_of(const SimulatedStep& simulated) { return *std::max_element(simulated.peaks.begin(), simulated.peaks.end()); }

// The shortest step of the built-in schedules within the memory; 0: none is.
double best_built_in(const SearchRequest& wanted) {
  double best = 0;
  for (const std::string& name : built_in_names()) {
    if (name == "inference" || (name == "data-parallel" && wanted.stages > 1)) continue;
    try {
      const Schedule schedule = built_in(name, {wanted.stages, wanted.micro_batches, std::nullopt});
      const SimulatedStep simulated = simulate(schedule, even_times(schedule, wanted.times, wanted.link));
      if (wanted.memory && peak_of(simulated) > *wanted.memory) continue;
      if (best == 0 || simulated.total < best) best = simulated.total;
    } catch (const Error&) {
    }
  }
  return best;
}

TEST(Search, IsNeverBehindABuiltInSchedule) {
  std::mt19937 random(7);
  const auto between = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  int shorter = 0;
  for (int i = 0; i < 20; ++i) {
    SearchRequest wanted{.stages = 2 + static_cast<uint32_t>(random() % 7),
                         .micro_batches = 2 + static_cast<int64_t>(random() % 20)};
    wanted.times = {between(0.5, 2), between(0.5, 2), between(0.2, 2)};
    wanted.link = i % 3 == 0 ? 0 : between(0, 0.3);
    if (i % 2 == 0) wanted.memory = wanted.stages * between(1, 2);
    const FoundSchedule found = search(wanted);
    validate(found.schedule);
    EXPECT_EQ(found.schedule.micro_batches(), wanted.micro_batches);
    EXPECT_EQ(found.schedule.ranks(), wanted.stages);
    if (wanted.memory) EXPECT_LE(peak_of(found.simulated), *wanted.memory + 1e-9);
    const double best = best_built_in(wanted);
    if (best > 0) EXPECT_LE(found.simulated.total, best * (1 + 1e-9)) << i << ", " << found.name;
    if (best > 0 && found.simulated.total < best * 0.999) ++shorter;
    EXPECT_EQ(search(wanted).schedule, found.schedule) << "the same each time";
  }
  EXPECT_GT(shorter, 5) << "what is made for the times is shorter than a fixed order now and then";
}

// Generating orders takes a look at every rank for each action: a large pipeline would be searched for hours.
TEST(Search, ALargePipelineHasTheBuiltInSchedulesAlone) {
  const FoundSchedule found = search({.stages = 128, .micro_batches = 260, .times = {1, 2, 0.5}});
  EXPECT_NE(found.name, "made for these times");
  EXPECT_LE(found.simulated.total, best_built_in({.stages = 128, .micro_batches = 260, .times = {1, 2, 0.5}}));
}

TEST(Search, EqualTimesAreThoseOfZbV) {
  const FoundSchedule found = search({.stages = 4, .micro_batches = 8});
  EXPECT_LE(found.simulated.total, 25.5);
  const FoundSchedule one = search({.stages = 1, .micro_batches = 4});
  EXPECT_DOUBLE_EQ(one.simulated.total, 12);
  EXPECT_DOUBLE_EQ(peak_of(one.simulated), 1);
}

TEST(Search, AMemoryThatIsTooSmallIsAnErrorWithTheLeast) {
  try {
    search({.stages = 4, .micro_batches = 8, .memory = 0.5});
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("no schedule keeps at most 0.5 activations on each rank"));
  }
  EXPECT_LE(peak_of(search({.stages = 4, .micro_batches = 8, .memory = 2}).simulated), 2) << "slow, but it fits";
}

// Stages that are not equally long.
TEST(Search, AnOrderForGivenPartsUsesTheirTimes) {
  const std::vector<uint32_t> rank_of = loop(3, 1);
  const Times times{{{1, 1, 1}, {3, 3, 2}, {1, 1, 1}}, 0.1};
  const FoundSchedule found = search_order(rank_of, 9, times, std::nullopt);
  EXPECT_EQ(found.schedule.rank_of, rank_of);
  for (const char* name : {"gpipe", "1f1b", "zb-h1"})
    EXPECT_LE(found.simulated.total, simulate(built_in(name, {3, 9, {}}), times).total * (1 + 1e-9)) << name;
}

}  // namespace
}  // namespace gannet::pipeline
