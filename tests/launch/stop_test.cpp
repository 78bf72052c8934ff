// Stopping on request: the opt-in handlers, the answer that all ranks share, and what `gannet run` makes of it.
#include <gannet/error.h>
#include <gannet/stop.h>
#include <gmock/gmock.h>

#include <optional>

#include "launch/launched.h"

namespace {

using gannet::launch::LaunchOptions;
using testing::HasSubstr;
using testing::Not;

void (*handler_of(int number))(int) {
  struct sigaction action{};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}
void handle_nothing(int) {}

TEST(StopSignals, SetsAMarkAndGivesTheFormerHandlingBack) {
  signal(SIGUSR1, handle_nothing);
  signal(SIGTERM, SIG_IGN);
  {
    gannet::StopSignals stop;
    EXPECT_FALSE(stop.requested());
    EXPECT_EQ(stop.signal(), 0);
    raise(SIGUSR1);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal(), SIGUSR1);
    raise(SIGTERM);
    EXPECT_EQ(stop.signal(), SIGTERM);
  }
  EXPECT_EQ(handler_of(SIGUSR1), handle_nothing);
  EXPECT_EQ(handler_of(SIGTERM), SIG_IGN);
  signal(SIGUSR1, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  EXPECT_FALSE(gannet::StopSignals().requested());  // what an earlier one saw is over
}

TEST(StopSignals, TakesOtherSignalsAndLeavesTheRestAlone) {
  gannet::StopSignals stop({SIGUSR2, SIGUSR2});
  raise(SIGUSR2);
  EXPECT_EQ(stop.signal(), SIGUSR2);
  EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
}

TEST(StopSignals, DoesNotUndoAHandlerThatTheProgramSetLater) {
  {
    gannet::StopSignals stop;
    signal(SIGUSR1, handle_nothing);
  }
  EXPECT_EQ(handler_of(SIGUSR1), handle_nothing);
  EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
  signal(SIGUSR1, SIG_DFL);
}

TEST(StopSignals, TwoAtATimeAreAnErrorAndOneAfterTheOtherAreNot) {
  std::optional<gannet::StopSignals> first(std::in_place);
  try {
    gannet::StopSignals second;
    FAIL() << "a second one was made";
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kOrder);
    EXPECT_THAT(error.what(), HasSubstr("there is a StopSignals already"));
  }
  first.reset();
  first.emplace();
}

TEST(StopSignals, ASignalThatNobodyCanHandleIsAnErrorAndChangesNothing) {
  try {
    gannet::StopSignals stop({SIGTERM, SIGKILL});
    FAIL() << "SIGKILL was taken";
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kArgument);
    EXPECT_THAT(error.what(), HasSubstr("StopSignals cannot handle signal 9"));
  }
  EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
  EXPECT_THROW(gannet::StopSignals({}), gannet::Error);
  gannet::StopSignals works;
}

class GannetRunStop : public GannetRun {
 protected:
  std::vector<std::string> deaf() const {  // to all but SIGKILL
    return {"sh", "-c", "trap '' TERM; echo $$ > " + at("ready") + "$RANK; while :; do sleep 0.1; done"};
  }
};

TEST_F(GannetRunStop, SavesOnEveryRankAtTheSameStepAndDoesNotStartAgain) {
  for (const int number : {SIGTERM, SIGUSR1}) {
    Launched run({"--num_procs", "2", "--max-restarts", "3", kStopsWhenAsked, folder_.string()});
    pids_in({at("ready0"), at("ready1")});
    kill(run.pid(), number);
    EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.error() << run.output();
    EXPECT_THAT(run.error(), HasSubstr(std::string("stopped by ") + (number == SIGTERM ? "SIGTERM" : "SIGUSR1") +
                                       " after saving (exit code 85)\n"));
    EXPECT_THAT(run.error(), Not(HasSubstr("restart")));
    EXPECT_THAT(run.error(), Not(HasSubstr("failed first")));
    EXPECT_EQ(content(at("saved0")), content(at("saved1")));
    EXPECT_THAT(content(at("saved0")), Not(""));
    for (const char* file : {"ready0", "ready1", "saved0", "saved1"}) std::filesystem::remove(at(file));
  }
}

TEST_F(GannetRunStop, ASignalToOneRankStopsAll) {
  // As a batch system may send it: the launcher hears nothing.
  Launched run({"--num_procs", "2", kStopsWhenAsked, folder_.string()});
  const auto pids = pids_in({at("ready0"), at("ready1")});
  ASSERT_EQ(pids.size(), 2u);
  kill(pids[1], SIGUSR1);
  EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.error();
  EXPECT_THAT(run.error(), HasSubstr("stopped on request after saving (exit code 85)\n"));
  EXPECT_THAT(run.output(), HasSubstr("own signal 0"));
  EXPECT_THAT(run.output(), HasSubstr("own signal " + std::to_string(SIGUSR1)));
  EXPECT_EQ(content(at("saved0")), content(at("saved1")));
}

TEST_F(GannetRunStop, AloneItAsksNobody) {
  Launched run([&] {
    for (const char* name : {"RANK", "WORLD_SIZE"}) unsetenv(name);
    execl(kStopsWhenAsked.c_str(), kStopsWhenAsked.c_str(), folder_.c_str(), nullptr);
    return 99;
  });
  pids_in({at("ready0")});
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.error();
}

TEST_F(GannetRunStop, TheGracePeriodIsLongEnoughToSaveOrThenOver) {
  {
    Launched run({"--num_procs", "2", "--grace-seconds", "10", kStopsWhenAsked, folder_.string(), "1"});
    pids_in({at("ready0"), at("ready1")});
    kill(run.pid(), SIGTERM);
    EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.error();
    EXPECT_THAT(run.error(), HasSubstr("SIGTERM is forwarded to 2 ranks, which have 10 s to end; send it again to kill them\n"));
  }
  for (const char* file : {"ready0", "ready1"}) std::filesystem::remove(at(file));
  Launched run(LaunchOptions{.procs = 2, .grace_seconds = 0.5, .command = deaf()});
  pids_in({at("ready0"), at("ready1")});
  const auto start = Clock::now();
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(25));
  EXPECT_THAT(run.error(), HasSubstr("which did not end within 0.5 s of SIGTERM\n"));
  EXPECT_THAT(run.error(), HasSubstr("stopped by SIGTERM, and not every rank confirmed by exit code 85 that it saved: rank "));
  EXPECT_THAT(run.error(), HasSubstr(" was killed by gannet run (exit code 137)\n"));
}

TEST_F(GannetRunStop, AProgramBehindAShellScriptHasTheGracePeriodToo) {
  // The script ends at once on SIGTERM, and the program that it had started takes longer than after a failure.
  const std::string program = "trap 'sleep 0.8; echo saved > " + at("saved") + "; exit 85' TERM; echo $$ > " + at("ready") +
                              "; while :; do sleep 0.05; done";
  std::ofstream(at("program")) << program;
  Launched run(
      LaunchOptions{.procs = 2, .command = {"sh", "-c", "if [ $RANK = 0 ]; then sh " + at("program") + "; fi; sleep 60"}},
      std::chrono::milliseconds(200));
  pids_in({at("ready")});
  kill(run.pid(), SIGTERM);
  run.finish();
  EXPECT_EQ(content(at("saved")), "saved\n");
}

TEST_F(GannetRunStop, ASignalToTheWholeJobIsOneSignal) {
  // As `scancel` and systemd send it, to each process of a job: both of gannet run's own, and the ranks.
  Launched run({"--num_procs", "2", kStopsWhenAsked, folder_.string(), "1"});
  const auto ranks = pids_in({at("ready0"), at("ready1")});
  ASSERT_EQ(ranks.size(), 2u);
  for (const pid_t pid : children_of(run.pid())) kill(pid, SIGTERM);
  for (const pid_t pid : ranks) kill(pid, SIGTERM);
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.error();
  EXPECT_THAT(run.error(), Not(HasSubstr("SIGTERM again")));
}

TEST_F(GannetRunStop, ASecondSignalKillsAtOnce) {
  Launched run(LaunchOptions{.procs = 2, .command = deaf()});
  pids_in({at("ready0"), at("ready1")});
  const auto start = Clock::now();
  kill(run.pid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(25));
  EXPECT_THAT(run.error(), HasSubstr("SIGTERM again: killing the ranks\n"));
}

TEST_F(GannetRunStop, ARankThatGoesOnAfterTheOthersHaveStoppedIsEnded) {
  Launched run(
      LaunchOptions{.procs = 2, .grace_seconds = 0.5, .command = {"sh", "-c", "[ $RANK = 0 ] && exit 85; exec sleep 60"}});
  const auto start = Clock::now();
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  EXPECT_THAT(run.error(), HasSubstr("killing rank 1, which did not end within 0.5 s of the end of rank 0\n"));
}

}  // namespace
