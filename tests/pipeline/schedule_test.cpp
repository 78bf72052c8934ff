// The form of schedules, as text and as CSV, and the orders of the built-in ones.
#include "pipeline/schedule.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/format.h"
#include "pipeline/built_in.h"

namespace gannet::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

std::string refused_csv(const std::string& text) {
  return refusal(ErrorCode::kConfig, [&] { from_csv(text, "mine.csv"); });
}

TEST(ScheduleText, IsPyTorchs) {
  EXPECT_EQ(to_text(Action{Action::kForward, 2, 0}), "2F0");
  EXPECT_EQ(to_text({{Action::kInput, 1, 3}, {Action::kWeight, 1, 3}, {Action::kBackward, 0, 2}}), "1I3 1W3 0B2");
  EXPECT_EQ(to_csv(built_in("1f1b", {2, 3, {}})), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(ScheduleText, CsvReturnsTheSameSchedule) {
  for (const std::string& name : built_in_names()) {
    const uint32_t stages = name == "data-parallel" ? 1 : 3;
    const Schedule schedule = built_in(name, {stages, 6, {}});
    EXPECT_EQ(from_csv(to_csv(schedule), name), schedule) << name;
  }
}

TEST(ScheduleText, CsvOfPyTorchIsReadWithPausesAndCommunication) {
  const Schedule schedule = from_csv(
      "0UNSHARD,0F0,0SEND_F0,,,0RECV_B0,0B0,0REDUCE_GRAD\r\n"
      " ,1RECV_F0,1F0 , 1I0,1SEND_B0,1W0\r\n\r\n",
      "mine.csv");
  EXPECT_THAT(schedule.rank_of, ElementsAre(0, 1));
  EXPECT_EQ(to_csv(schedule), "0F0,0B0\n1F0,1I0,1W0\n");
}

TEST(ScheduleText, AByteOrderMarkIsLeftOut) {
  EXPECT_EQ(to_csv(from_csv("\xEF\xBB\xBF"
                            "0F0,0B0\n",
                            "x")),
            "0F0,0B0\n");
}

TEST(ScheduleText, PartsAreWhereTheirActionsAre) {
  EXPECT_THAT(from_csv("0F0,3F0\n1F0,2F0\n", "v").rank_of, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(from_csv("0F0,2F0\n1F0,3F0\n", "loop").rank_of, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(v_shape(2), from_csv("0F0,3F0\n1F0,2F0\n", "v").rank_of);
  EXPECT_EQ(loop(2, 2), from_csv("0F0,2F0\n1F0,3F0\n", "loop").rank_of);
}

TEST(ScheduleText, AnOverlappedPairIsItsTwoActions) {
  EXPECT_EQ(to_csv(from_csv("(0F1;1B0)OVERLAP_F_B,1F1\n", "x")), "0F1,1B0,1F1\n");
  EXPECT_THAT(refused_csv("(0F1;1B0)OVERLAP\n"), HasSubstr("row 1, column 1: '(0F1;1B0)OVERLAP' is not a schedule action"));
  EXPECT_THAT(refused_csv("((0F1;1B0)OVERLAP_F_B)OVERLAP_F_B\n"), HasSubstr("is not a schedule action"));
}

TEST(ScheduleText, AWrongCellIsNamedWithRowAndColumn) {
  for (const char* cell :
       {"F0", "0F", "0X0", "0F0x", "0f0", "-1F0", "0F-1", "0FF0", "9999999999F0", "0F9999999999", "0", "0SEND_X0"})
    EXPECT_THAT(
        refused_csv(formatted("0F0,0B0\n1F0,{}\n", cell)),
        HasSubstr(formatted("mine.csv: row 2, column 2: '{}' is not a schedule action\n  (write part, F, B, I or W", cell)));
  EXPECT_THAT(refused_csv("0F0,\x1b[2J\n"), testing::Not(HasSubstr("\x1b")));
}

TEST(ScheduleText, RowsThatAreNoRanksAreRefused) {
  EXPECT_THAT(refused_csv(""), HasSubstr("mine.csv: the file of a schedule has no rows"));
  EXPECT_THAT(refused_csv("0F0\n,\n1F0\n"), HasSubstr("row 2 has no action, so rank 1 would have no part"));
  EXPECT_THAT(refused_csv("0F0,0B0\n0F1\n"), HasSubstr("row 2, column 1: 0F1 is of part 0, which row 1 has too"));
  EXPECT_THAT(refused_csv("0F0\n2F0\n"), HasSubstr("there are actions of part 2, and none of part 1"));
}

// DeepSpeed's TrainSchedule, step by step from its formulas: at step t, stage s runs the forward or
// the backward of one micro-batch, or nothing if that is none of the batch's.
std::vector<Action> train_schedule(int64_t s, int64_t stages, int64_t micro_batches) {
  std::vector<Action> actions;
  for (int64_t t = 0; t < 2 * (micro_batches + stages - 1); ++t) {
    const bool even_step = t % 2 == 0, even_stage = s % 2 == 0;
    int64_t micro_batch = 0;
    if (even_step && even_stage) micro_batch = t / 2 - s / 2;
    if (!even_step && !even_stage) micro_batch = (t - 1) / 2 - s / 2;
    if (even_step && !even_stage) micro_batch = t / 2 - stages + (s + 1) / 2;
    if (!even_step && even_stage) micro_batch = (t - 1) / 2 - stages + 1 + s / 2;
    if (micro_batch < 0 || micro_batch >= micro_batches) continue;
    actions.push_back({even_step == even_stage ? Action::kForward : Action::kBackward, static_cast<uint32_t>(s), micro_batch});
  }
  return actions;
}

TEST(BuiltIn, OneForwardOneBackwardIsDeepSpeedsTrainSchedule) {
  for (uint32_t stages = 1; stages <= 9; ++stages)
    for (int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      const Schedule schedule = built_in("1f1b", {stages, micro_batches, {}});
      for (uint32_t s = 0; s < stages; ++s)
        EXPECT_EQ(schedule.actions[s], train_schedule(s, stages, micro_batches)) << stages << " " << micro_batches << " " << s;
    }
}

TEST(BuiltIn, GpipeRunsAllForwardsFirst) {
  EXPECT_EQ(to_text(built_in("gpipe", {2, 3, {}}).actions[1]), "1F0 1F1 1F2 1B0 1B1 1B2");
}

// What PyTorch 2.11's generators print for these sizes.
TEST(BuiltIn, OrdersOverSeveralChunksArePyTorchs) {
  EXPECT_EQ(to_csv(built_in("interleaved", {2, 4, {}})),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
  EXPECT_EQ(to_csv(built_in("interleaved-zb", {2, 2, {}})),
            "0F0,0F1,2F0,2F1,2I0,2W0,2I1,2W1,0I0,0W0,0I1,0W1\n"
            "1F0,1F1,3F0,3I0,3F1,3I1,3W0,1I0,3W1,1I1,1W0,1W1\n");
  EXPECT_EQ(to_csv(built_in("zb-v", {2, 2, {}})),
            "0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1\n"
            "1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1\n");
  EXPECT_EQ(to_csv(built_in("dualpipe-v", {2, 4, {}})),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3\n"
            "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

TEST(BuiltIn, OneChunkIsThePlainOrder) {
  EXPECT_EQ(built_in("interleaved", {3, 7, 1}), built_in("1f1b", {3, 7, {}}));
  EXPECT_EQ(built_in("interleaved-zb", {3, 7, 1}), built_in("zb-h1", {3, 7, {}}));
  EXPECT_EQ(to_text(built_in("data-parallel", {1, 2, {}}).actions[0]), "0F0 0B0 0F1 0B1");
  EXPECT_EQ(to_csv(built_in("inference", {2, 2, {}})), "0F0,0F1\n1F0,1F1\n");
}

TEST(BuiltIn, SizesThatAScheduleCannotHaveAreRefused) {
  const auto refused = [](const char* name, const ScheduleSize& size) {
    return refusal(ErrorCode::kArgument, [&] { built_in(name, size); });
  };
  EXPECT_THAT(refused("zb-w", {2, 2, {}}), HasSubstr("there is no schedule 'zb-w'; did you mean"));
  EXPECT_THAT(refused("dualpipe-v", {4, 7, {}}),
              HasSubstr("4 stages need 8 micro-batches at least, two a stage, and there are 7"));
  EXPECT_THAT(refused("interleaved", {4, 9, {}}),
              HasSubstr("9 micro-batches cannot be divided into 2 equal rounds for 4 stages"));
  EXPECT_THAT(refused("zb-v", {4, 8, 3}), HasSubstr("it has 2 chunks of layers a rank, and not 3"));
  EXPECT_THAT(refused("data-parallel", {2, 8, {}}), HasSubstr("it is that of 1 stage, and not of 2"));
  EXPECT_THAT(refused("1f1b", {0, 8, {}}), HasSubstr("it cannot have 0 stages"));
  EXPECT_THAT(refused("1f1b", {1u << 31, 1 << 30, {}}), HasSubstr("with a product of at most"));
}

}  // namespace
}  // namespace gannet::pipeline
