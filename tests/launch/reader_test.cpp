// gannet run and the reader of its output: one that pauses, one that is slow, one that goes away.
#include <gannet/stop.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "launch/launched.h"

namespace {

using gannet::launch::LaunchOptions;
using testing::HasSubstr;
using testing::Not;

// Time without reads before something happens: 2 s, or GANNET_TEST_STILL_SECONDS.
std::chrono::duration<double> still() {
  const char* seconds = std::getenv("GANNET_TEST_STILL_SECONDS");
  return std::chrono::duration<double>(seconds ? std::atof(seconds) : 2);
}

class GannetRunReader : public GannetRun {
 protected:
  LaunchOptions flood(uint32_t restarts = 0) const {
    return {.procs = 2, .max_restarts = restarts, .command = {"sh", "-c", "echo $$ > " + at("ready") + "$RANK; exec yes"}};
  }
};

TEST_F(GannetRunReader, StandsStillAndASignalIsForwarded) {
  Launched run(Launched::Unread(), flood());
  const auto ranks = pids_in({at("ready0"), at("ready1")});
  std::this_thread::sleep_for(still());
  kill(run.pid(), SIGTERM);
  expect_gone(ranks, 5);
  EXPECT_LT(run.ends_within(60), 10);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
}

TEST_F(GannetRunReader, StandsStillAndTheSaveIsComplete) {
  // The ranks are held up in a write when the signal comes, and must get out of it to save.
  Launched run(Launched::Unread(), {.procs = 2, .command = {kStopsWhenAsked, folder_.string(), "1", "20000"}});
  pids_in({at("ready0"), at("ready1")});
  std::this_thread::sleep_for(still());
  kill(run.pid(), SIGTERM);
  EXPECT_LT(run.ends_within(60), 10);
  EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.output().substr(0, 2000);
  EXPECT_THAT(content(at("saved0")), Not(""));
  EXPECT_EQ(content(at("saved0")), content(at("saved1")));
}

TEST_F(GannetRunReader, StandsStillAndARankDies) {
  Launched run(Launched::Unread(), flood());
  const auto ranks = pids_in({at("ready0"), at("ready1")});
  ASSERT_EQ(ranks.size(), 2u);
  std::this_thread::sleep_for(still());
  kill(ranks[1], SIGKILL);
  expect_gone(ranks, 5);
  EXPECT_LT(run.ends_within(60), 10);
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
}

TEST_F(GannetRunReader, StandsStillAndTheRanksStartAgain) {
  LaunchOptions options = flood(1);
  options.command[2] = "echo $$ > " + at("ready") + "$GANNET_RESTART$RANK; exec yes";
  Launched run(Launched::Unread(), options);
  const auto ranks = pids_in({at("ready00"), at("ready01")});
  ASSERT_EQ(ranks.size(), 2u);
  std::this_thread::sleep_for(still());
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(pids_in({at("ready10"), at("ready11")}).size(), 2u);
  kill(run.pid(), SIGTERM);
  EXPECT_LT(run.ends_within(60), 10);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
}

TEST_F(GannetRunReader, IsLateAndLosesNothing) {
  Launched run(Launched::Unread(), {.procs = 2,
                                    .command = {"sh", "-c",
                                                "i=0; while [ $i -lt 40000 ]; do echo line $i of some length "
                                                "that is the same for all of them; i=$((i+1)); done"}});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  run.read_the_rest();
  EXPECT_EQ(run.finish(), 0);
  std::stringstream lines(run.output());
  int next[2] = {0, 0};
  for (std::string line; std::getline(lines, line);) {
    const int rank = line[1] - '0';
    ASSERT_TRUE(rank == 0 || rank == 1) << line;
    EXPECT_EQ(line.substr(4, 5 + std::to_string(next[rank]).size()), "line " + std::to_string(next[rank]));
    ++next[rank];
  }
  EXPECT_EQ(next[0], 40000);
  EXPECT_EQ(next[1], 40000);
}

TEST_F(GannetRunReader, IsSlowAndHearsEveryRank) {
  Launched run(Launched::Unread(), {.procs = 2,
                                    .command = {"sh", "-c",
                                                "[ $RANK = 0 ] && exec yes; for i in 1 2 3 4 5; do echo here $i; "
                                                "sleep 0.1; done; exec sleep 60"}});
  std::string text;
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (text.find("[1] here 5") == std::string::npos && Clock::now() < end) {
    text += run.read_some(20'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(text, HasSubstr("[1] here 5\n"));
  kill(run.pid(), SIGTERM);
  EXPECT_LT(run.ends_within(60), 10);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
}

TEST_F(GannetRunReader, IsGoneAndTheRunStopsWithASave) {
  // `gannet run ... | head`, of one rank and of two.
  for (const uint32_t procs : {2u, 1u}) {
    Launched run(Launched::Unread(),
                 {.procs = procs, .max_restarts = 3, .command = {kStopsWhenAsked, folder_.string(), "0.3", "100"}});
    pids_in({at("ready0")});
    EXPECT_THAT(run.read_some(10), HasSubstr("xxxx"));
    run.close_reader();
    EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << procs;
    EXPECT_THAT(content(at("saved0")), Not("")) << procs;
    for (const char* file : {"ready0", "ready1", "saved0", "saved1"}) std::filesystem::remove(at(file));
  }
}

TEST_F(GannetRunReader, IsGoneAndStderrSaysSo) {
  const std::string pipe = "{ " GANNET_BINARY_DIR "/bin/gannet run --num_procs 2 " + kStopsWhenAsked + " " + folder_.string() +
                           " 0 100; echo code $? >&2; } | head -n 1";
  Launched run([&] {
    execl("/bin/sh", "sh", "-c", pipe.c_str(), nullptr);
    return 99;
  });
  run.finish();
  EXPECT_THAT(run.output(), HasSubstr("] xxx"));
  EXPECT_THAT(
      run.error(),
      HasSubstr("[gannet run] the end of its output's reader: SIGTERM is forwarded to 2 ranks, which have 30 s to end\n"));
  EXPECT_THAT(run.error(), HasSubstr("[gannet run] stopped by the end of its output's reader after saving (exit code 85)\n"));
  EXPECT_THAT(run.error(), HasSubstr("code 85\n"));
  EXPECT_THAT(content(at("saved1")), Not(""));
}

TEST_F(GannetRunReader, WasNeverThere) {
  Launched run([&] {
    close(1);
    return gannet::launch::run(
        {.procs = 2, .command = {"sh", "-c", "echo $RANK; echo $$ > " + at("ready") + "$RANK; exec sleep 0.2"}});
  });
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_EQ(run.error(), "");
}

}  // namespace
