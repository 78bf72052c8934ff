// Every built-in schedule is right at every size; every kind of wrong schedule is named.
#include "pipeline/validate.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "pipeline/built_in.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string wrong(const Schedule& schedule, std::optional<int64_t> buffers = {}) {
  try {
    validate(schedule, buffers);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    EXPECT_FALSE(error.next_step().empty());
    return error.what();
  }
  return "nothing is wrong";
}

std::string wrong(const char* csv, std::optional<int64_t> buffers = {}) { return wrong(from_csv(csv, "x"), buffers); }

// Calls body(schedule, name) for the built-in schedules of many sizes.
template <class Body>
void for_each_built_in(const Body& body) {
  for (const std::string& name : built_in_names())
    for (uint32_t p = 1; p <= 8; ++p)
      for (int64_t m = 1; m <= 18; ++m)
        for (const uint32_t chunks : {1u, 2u, 3u, 4u}) {
          try {
            body(built_in(name, {p, m, chunks}), testing::Message() << name << " p " << p << " m " << m << " chunks " << chunks);
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), ErrorCode::kArgument) << error.what();  // no such size
          }
        }
}

TEST(Validate, EveryBuiltInScheduleIsRightAtEverySize) {
  int count = 0;
  for_each_built_in([&](const Schedule& schedule, const testing::Message& name) {
    EXPECT_EQ(wrong(schedule), "nothing is wrong") << name;
    ++count;
  });
  EXPECT_GT(count, 900);
}

TEST(Validate, AScheduleKeepsNoMoreThanItsPeaks) {
  for_each_built_in([&](const Schedule& schedule, const testing::Message& name) {
    const SimulatedStep step = simulate(schedule, even_times(schedule, {}));
    double most = 0;
    for (size_t rank = 0; rank < schedule.ranks(); ++rank)
      most = std::max(most, step.peaks[rank] * static_cast<double>(schedule.parts_of(rank)));
    if (most == 0) return;
    EXPECT_EQ(wrong(schedule, std::lround(most)), "nothing is wrong") << name;
    EXPECT_THAT(wrong(schedule, std::lround(most) - 1), HasSubstr("buffers")) << name;
  });
}

TEST(Validate, NoActionOfAnyBuiltInScheduleCanBeMissingOrTwice) {
  for (const std::string& name : built_in_names()) {
    const Schedule right = built_in(name, {name == "data-parallel" ? 1u : 3u, 6, {}});
    for (size_t rank = 0; rank < right.ranks(); ++rank)
      for (size_t i = 0; i < right.actions[rank].size(); ++i) {
        Schedule one = right;
        one.actions[rank].erase(one.actions[rank].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_THAT(wrong(one), HasSubstr(" is missing")) << name << to_text(right.actions[rank][i]);
        one = right;
        one.actions[rank].push_back(right.actions[rank][i]);
        EXPECT_THAT(wrong(one), HasSubstr("is there twice")) << name;
      }
  }
}

TEST(Validate, MissingActionsAreNamed) {
  EXPECT_THAT(wrong("0F0,0B0\n1F0\n"), HasSubstr("rank 1, 1 positions: 1B0 is missing, and so is I with W"));
  EXPECT_THAT(wrong("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n"), HasSubstr("1F1 is missing"));
  EXPECT_THAT(wrong("0F0,0I0,0W0\n1F0,1I0\n"), HasSubstr("1W0 is missing, although its I is there"));
  EXPECT_THAT(wrong("0F0,0F900000000\n1F0\n"), HasSubstr("is missing"));  // and takes no memory for 900 million
}

TEST(Validate, ActionsThatAreThereTwiceAreNamed) {
  EXPECT_THAT(wrong("0F0,0B0,0F0\n"), HasSubstr("rank 0, position 3: 0F0 is there twice, at position 1 before"));
  EXPECT_THAT(wrong("0F0,0I0,0B0\n"), HasSubstr("rank 0, position 3: 0B0 comes after 0I0 at position 2: B is I and W together"));
  EXPECT_THAT(wrong("0F0,0B0,0W0\n"), HasSubstr("rank 0, position 3: 0W0 is the second half of a backward that is whole"));
}

TEST(Validate, ActionsOutOfOrderAreNamed) {
  EXPECT_THAT(wrong("0B0,0F0\n"),
              HasSubstr("rank 0, position 1: 0B0 needs the activations of part 0, micro-batch 0, which 0F0 at "
                        "position 2 computes only later"));
  EXPECT_THAT(wrong("0F0,0W0,0I0\n"), HasSubstr("rank 0, position 2: 0W0 needs the input gradient of part 0, micro-batch 0"));
  EXPECT_THAT(wrong("1F0,0F0,1B0,0B0\n"), HasSubstr("position 1: 1F0 needs the activations of part 0"));
  EXPECT_THAT(wrong("0F0,1F0,0B0,1B0\n"), HasSubstr("position 3: 0B0 needs the input gradient of part 1"));
}

TEST(Validate, SendsThatCrossAreNamed) {
  EXPECT_THAT(wrong("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n"),
              AllOf(HasSubstr("rank 1, position 1: 1F1 takes the activations of part 0, micro-batch 1, but rank 0 sends the "
                              "activations of part 0, micro-batch 0 first, by 0F0 at position 1"),
                    HasSubstr("messages of two ranks arrive in order")));
  EXPECT_THAT(wrong("0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n"),
              HasSubstr("rank 0, position 3: 0B0 takes the input gradient of part 1"));
}

TEST(Validate, ADeadlockNamesTheCircle) {
  EXPECT_THAT(
      wrong("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
      HasSubstr(
          "the schedule is a deadlock: rank 0 waits at position 2, 0B0, for the input gradient of part 1, micro-batch 0 from "
          "rank 1; rank 1 waits at position 2, 1F1, for the activations of part 0, micro-batch 1 from rank 0"));
}

// Rank 2 takes micro-batch 1 only after a gradient from rank 1. Until then rank 1's send of it holds
// the lane in which rank 1 needs micro-batch 2 of rank 0. With sends that do not wait, all would run.
TEST(Validate, ASendThatHoldsUpItsLaneIsADeadlock) {
  const char* others =
      "2F0,3F0,3B0,2B0,2F1,3F1,3B1,2B1,2F2,3F2,3B2,2B2\n"
      "0F0,0F1,0F2,5F0,5B0,0B0,5F1,5B1,0B1,5F2,5B2,0B2\n";
  const auto schedule = [&](const char* row_of_rank_1) {
    Schedule all = from_csv(std::string(row_of_rank_1) + others, "x");
    std::rotate(all.actions.begin(), all.actions.begin() + 2, all.actions.end());
    all.rank_of = v_shape(3);
    return all;
  };
  EXPECT_EQ(wrong(schedule("1F0,1F1,4F0,4B0,1B0,1F2,4F1,4B1,1B1,4F2,4B2,1B2\n")), "nothing is wrong");
  EXPECT_THAT(
      wrong(schedule("1F0,1F1,1F2,4F0,4B0,1B0,4F1,4B1,1B1,4F2,4B2,1B2\n")),
      AllOf(HasSubstr("the schedule is a deadlock: rank 1 waits at position 3, 1F2, for the activations of part 0, micro-batch 2 "
                      "from rank 0, after its send of the activations of part 1, micro-batch 1 to rank 2; rank 2 waits at "
                      "position 3, 3B0")));
}

TEST(Validate, TooFewBuffersAreNamed) {
  EXPECT_EQ(wrong(built_in("1f1b", {4, 8, {}}), 4), "nothing is wrong");
  EXPECT_THAT(wrong(built_in("1f1b", {4, 8, {}}), 3),
              HasSubstr("rank 0, position 4: 0F3 would be activation 4 that is alive, and there are 3 buffers"));
  EXPECT_EQ(wrong(built_in("inference", {4, 8, {}}), 1), "nothing is wrong");
}

TEST(Validate, ActionsOnAnotherRankAreNamed) {
  Schedule schedule = built_in("1f1b", {2, 2, {}});
  schedule.actions[0][0].part = 1;
  EXPECT_THAT(wrong(schedule), HasSubstr("rank 0, position 1: 1F0 is of a part that rank 1 has"));
  schedule.actions[0][0].part = 7;
  EXPECT_THAT(wrong(schedule), HasSubstr("7F0 is of part 7, and there are 2"));
  schedule.actions[0][0] = {Action::kForward, 0, -1};
  EXPECT_THAT(wrong(schedule), HasSubstr("has a negative micro-batch"));
  EXPECT_THAT(wrong(Schedule{{{}}, {0}}), HasSubstr("the schedule has no actions"));
  EXPECT_THAT(wrong(Schedule{}), HasSubstr("the schedule has no parts"));
  EXPECT_THAT(wrong(Schedule{{{}}, {3}}), HasSubstr("part 0 is on rank 3, and there are 1"));
}

}  // namespace
}  // namespace gannet::pipeline
