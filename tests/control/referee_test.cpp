// The state machine behind the watch: events in, verdicts and lines out, no clock and no process.
#include "control/referee.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/channel.h"

namespace {

using namespace std::chrono_literals;
using gannet::ErrorCode;
using gannet::control::CallSite;
using gannet::control::Instant;
using gannet::control::Referee;
using testing::HasSubstr;

const Instant kStart{1000s};
CallSite call(uint64_t sequence, const char* name, int64_t step = -1) { return {"world", sequence, name, step, ""}; }

Referee three() {
  Referee referee(3, {}, kStart);
  referee.group("world", {0, 1, 2});
  return referee;
}

void all_beat(Referee& referee, Instant now) {
  for (uint32_t rank = 0; rank < 3; ++rank) referee.beat(rank, now);
}

TEST(Referee, SameCallsInAnyOrderOfArrivalAreFine) {
  Referee referee = three();
  for (const uint32_t rank : {2, 0, 1}) {
    referee.enter(rank, call(1, "backward", 1), false, kStart);
    referee.leave(rank, "world", false);
    referee.enter(rank, call(2, "step", 1), false, kStart);
  }
  EXPECT_TRUE(referee.look(kStart + 1s).empty());
  EXPECT_FALSE(referee.verdict());
}

TEST(Referee, NamesTheMachinesOfRanksWhereThereAreSeveral) {
  Referee referee(3, {}, kStart, {"gpu03", "gpu03", "gpu04"});
  referee.group("world", {0, 1, 2});
  referee.enter(0, call(1, "step", 7), false, kStart);
  referee.wait(0, "world", kStart, 20s);
  all_beat(referee, kStart + 10s);
  const auto reports = referee.look(kStart + 10s);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_THAT(reports[0].line, HasSubstr(" for ranks 1, 2 (gpu03, gpu04): "));
  referee.end(2, false, kStart + 11s);
  all_beat(referee, kStart + 12s);
  EXPECT_TRUE(referee.look(kStart + 12s).empty());
  ASSERT_TRUE(referee.verdict());
  EXPECT_THAT(referee.verdict()->sentence, HasSubstr("rank 2 (gpu04) has died before its first call"));
}

TEST(Referee, DifferentCallsAreAMismatchThatSaysWhoIsWhere) {
  Referee referee = three();
  referee.enter(0, call(1, "step", 7), false, kStart);
  referee.enter(2, call(1, "barrier"), true, kStart);
  ASSERT_TRUE(referee.verdict());
  EXPECT_EQ(referee.verdict()->code, ErrorCode::kMismatch);
  EXPECT_EQ(referee.verdict()->sentence,
            "the ranks make different calls: rank 2 called barrier() where rank 0 called step() of step 7; rank 0 is in step() "
            "of step 7, "
            "rank 1 is before its first call, rank 2 is in barrier()");
  EXPECT_TRUE(referee.take_granted().empty());
}

TEST(Referee, WhoAsksIsGrantedWhenTheLastOneCame) {
  Referee referee = three();
  referee.enter(0, call(1, "barrier"), true, kStart);
  referee.enter(1, call(1, "barrier"), true, kStart);
  EXPECT_TRUE(referee.take_granted().empty());
  referee.enter(2, call(1, "barrier"), true, kStart);
  EXPECT_EQ(referee.take_granted().size(), 3u);
  EXPECT_TRUE(referee.take_granted().empty());
}

TEST(Referee, RanksThatDieTogetherAreNamedTogetherWithinASecond) {
  Referee referee = three();
  referee.enter(0, call(1, "step", 1), false, kStart);
  referee.enter(1, call(1, "step", 1), false, kStart);
  referee.end(1, false, kStart);
  referee.look(kStart + 10ms);
  EXPECT_FALSE(referee.verdict());
  referee.end(2, false, kStart + 100ms);
  referee.look(kStart + 1s);
  ASSERT_TRUE(referee.verdict());
  EXPECT_EQ(referee.verdict()->sentence,
            "rank 1 has died in step() of step 1, rank 2 has died before its first call; rank 0 is in step() of step 1");
}

TEST(Referee, ARankThatSaidGoodbyeIsMissedOnlyWhenItIsNeeded) {
  Referee referee = three();
  for (uint32_t rank = 0; rank < 3; ++rank) referee.enter(rank, call(1, "barrier"), false, kStart);
  referee.leave(1, "world", false);
  referee.end(1, true, kStart);
  referee.end(1, false, kStart);  // its connection closes after the goodbye
  referee.look(kStart + 60s);
  EXPECT_FALSE(referee.verdict()) << "the others finish a call that rank 1 has completed";
  referee.leave(0, "world", false);
  referee.enter(0, call(2, "step", 1), false, kStart + 60s);
  referee.look(kStart + 60s);
  ASSERT_TRUE(referee.verdict());
  EXPECT_THAT(referee.verdict()->sentence, HasSubstr("rank 1 has ended after barrier(); "));
}

TEST(Referee, ARankIsFollowedUntilTheOthersHaveEndedWhatItHasCompleted) {
  Referee referee = three();
  for (uint32_t rank = 0; rank < 3; ++rank) referee.enter(rank, call(1, "initialize"), true, kStart);
  EXPECT_FALSE(referee.is_followed(0, kStart)) << "it is inside itself";
  referee.leave(0, "world", false);
  EXPECT_TRUE(referee.is_followed(0, kStart));
  EXPECT_FALSE(referee.is_followed(0, kStart + 60s)) << "nobody has given a sign of life for a minute";
  referee.leave(1, "world", false);
  EXPECT_TRUE(referee.is_followed(0, kStart)) << "rank 2";
  referee.end(2, false, kStart);
  EXPECT_FALSE(referee.is_followed(0, kStart)) << "the others are out, or dead";
  referee.enter(1, call(2, "step", 1), false, kStart);
  EXPECT_FALSE(referee.is_followed(0, kStart)) << "in a call that rank 0 will not make";
}

// Rank 1 has left train() by an exception that its program caught; rank 0 waits for it. Rank 2 computes.
TEST(Referee, WhoWaitsForARankThatLeftByAnErrorIsToldItsErrorWithinSeconds) {
  Referee referee = three();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    referee.enter(rank, call(1, "mean"), false, kStart);
    referee.leave(rank, "world", false);
  }
  referee.abandon(1, "world", "train() by an error: the disk is full", kStart);
  for (auto time = 0s; time < 5s; time += 1s) {
    all_beat(referee, kStart + time);
    referee.look(kStart + time);
    EXPECT_FALSE(referee.verdict()) << "nobody waits";
  }
  referee.enter(0, call(2, "step", 4), false, kStart + 5s);
  referee.wait(0, "world", kStart + 5s, 600s);
  all_beat(referee, kStart + 6s);
  referee.look(kStart + 6s);
  EXPECT_FALSE(referee.verdict());
  referee.look(kStart + 7s);
  ASSERT_TRUE(referee.verdict());
  EXPECT_EQ(referee.verdict()->code, ErrorCode::kPeerLost);
  EXPECT_EQ(referee.verdict()->sentence,
            "rank 1 has left train() by an error: the disk is full (rank 0 is in step() of step 4, rank 2 is after mean())");
}

TEST(Referee, ACallOfARankThatLeftByAnErrorIsNotTakenForThatOfTheOthers) {
  Referee referee = three();
  referee.abandon(1, "world", "train() by an error: no", kStart);
  referee.enter(1, call(1, "mean"), false, kStart);
  EXPECT_FALSE(referee.verdict());
  referee.enter(0, call(1, "mean"), false, kStart);
  ASSERT_TRUE(referee.verdict());
  EXPECT_THAT(referee.verdict()->sentence, HasSubstr("rank 1 has left train() by an error: no"));
}

TEST(Referee, RanksThatAllLeaveByAnErrorGoOnTogether) {
  Referee referee = three();
  referee.abandon(0, "world", "train() by an error: no", kStart);
  referee.enter(0, call(1, "mean"), false, kStart);
  referee.wait(0, "world", kStart, 600s);
  for (const uint32_t rank : {1, 2}) referee.abandon(rank, "world", "train() by an error: no", kStart + 20s);
  all_beat(referee, kStart + 20s);
  referee.look(kStart + 30s);
  EXPECT_FALSE(referee.verdict()) << "rank 0 waits for those that are on their way";
  for (const uint32_t rank : {1, 2}) referee.enter(rank, call(1, "mean"), false, kStart + 30s);
  EXPECT_FALSE(referee.verdict());
}

TEST(Referee, ALateRankIsReportedEveryTenSecondsAndIsAnErrorAtTheDeadline) {
  Referee referee = three();
  for (const uint32_t rank : {0, 2}) {
    referee.enter(rank, call(1, "step", 1), false, kStart);
    referee.wait(rank, "world", kStart, 25s);
  }
  int lines = 0;
  for (auto time = 0s; time < 25s; time += 1s) {
    all_beat(referee, kStart + time);
    for (const auto& report : referee.look(kStart + time)) {
      ++lines;
      EXPECT_EQ(report.ranks, (std::vector<uint32_t>{0, 2}));
      EXPECT_THAT(report.line, HasSubstr(" of 25 s) for rank 1: rank 1 is before its first call"));
    }
    EXPECT_FALSE(referee.verdict());
  }
  EXPECT_EQ(lines, 2);
  referee.look(kStart + 25s);
  ASSERT_TRUE(referee.verdict());
  EXPECT_EQ(referee.verdict()->code, ErrorCode::kTimeout);
  EXPECT_THAT(referee.verdict()->sentence,
              HasSubstr("rank 1 is late: ranks 0, 2 have waited in step() of step 1 for 25 s, the deadline"));
}

TEST(Referee, ARankThatStoppedWhileItWaitedIsTheLateOne) {
  Referee referee = three();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    referee.enter(rank, call(1, "step", 1), false, kStart);
    referee.wait(rank, "world", kStart, 600s);
  }
  referee.beat(0, kStart + 11s);
  referee.beat(2, kStart + 11s);
  const auto reports = referee.look(kStart + 11s);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_THAT(reports[0].line, HasSubstr("for rank 1: rank 1 is in step() of step 1; rank 1 has given no sign of life for 11 s"));
}

TEST(Channel, MessagesComeOutOfAStreamAsTheyWentIn) {
  const gannet::control::Message first{"enter", "", std::string("a\0b", 3)}, second{"beat"};
  std::string stream = gannet::control::encode(first) + gannet::control::encode(second);
  const std::string tail = stream.substr(stream.size() - 3);
  stream.resize(stream.size() - 3);
  EXPECT_EQ(gannet::control::decode(stream), std::vector<gannet::control::Message>{first});
  stream += tail;
  EXPECT_EQ(gannet::control::decode(stream), std::vector<gannet::control::Message>{second});
  EXPECT_TRUE(stream.empty());
  for (std::string strange :
       {std::string("GET / HTTP/1.1\r\n"), std::string("\4\0\0\0\xff\xff\xff\xff", 8), std::string(4, '\0')})
    EXPECT_THROW(gannet::control::decode(strange), gannet::Error);
}

}  // namespace
