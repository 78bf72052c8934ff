// Reports and reactions of `gannet run` when a rank fails: the cause in words, its consequences,
// the last lines, and restarts.
#include <gmock/gmock.h>

#include "launch/cause.h"
#include "launch/launch.h"
#include "launch/launched.h"

namespace {

using gannet::launch::LaunchOptions;
using testing::HasSubstr;
using testing::Not;

class GannetRunFault : public GannetRun {};

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(GannetRunFault, ReportsTheFirstFailureAsTheCauseAndTheOthersAsWhatFollowed) {
  Launched run(  // rank 1 writes only to stderr: two pipes that are read at once have no order between them
      {"--num_procs", "3", "sh", "-c",
       "case $RANK in 0) trap 'echo peer lost; exit 3' TERM; while :; do sleep 0.05; done;; "
       "1) sleep 0.4; exec >&2; for i in $(seq 30); do echo line $i; done; echo the reason; exit 7;; 2) exec sleep 60;; esac"});
  EXPECT_EQ(run.finish(), 7);
  EXPECT_THAT(run.error(), HasSubstr("[gannet run] rank 1 of 3 failed first, and is the cause: it ended with exit code 7\n"));
  EXPECT_THAT(run.error(), HasSubstr("rank 0 ended with exit code 3"));
  EXPECT_THAT(run.error(), HasSubstr("rank 2 was ended by gannet run"));
  EXPECT_THAT(run.error(), HasSubstr("\n  The last lines of rank 1:\n    line 12\n"));
  EXPECT_THAT(run.error(), HasSubstr("\n    line 30\n    the reason\n"));
  EXPECT_GT(run.error().find("The last lines of rank 1"), run.error().find("What followed from it: "));
}

TEST_F(GannetRunFault, SaysWhatASignalUsuallyMeans) {
  const std::pair<const char*, const char*> cases[] = {
      {"SEGV", "SIGSEGV: it accessed invalid memory"},
      {"ABRT", "SIGABRT: it called abort()"},
      {"BUS", "SIGBUS: the memory of a mapped file is gone: a full /dev/shm"},
      {"KILL", "SIGKILL: someone's kill -9"},
      {"TERM", "SIGTERM: it was sent from outside, not by gannet run"},
  };
  for (const auto& [name, text] : cases) {
    Launched run(LaunchOptions{
        .procs = 2, .command = {"sh", "-c", std::string("if [ $RANK = 0 ]; then kill -") + name + " $$; fi; exec sleep 60"}});
    run.finish();
    EXPECT_THAT(run.error(), HasSubstr(std::string("\n    ") + text));
  }
}

TEST_F(GannetRunFault, ASignalInsideAShellScriptIsSeenThroughItsExitCode) {
  Launched run(LaunchOptions{.command = {"sh", "-c", "sh -c 'kill -SEGV $$'; exit $?"}});
  EXPECT_EQ(run.finish(), 128 + SIGSEGV);
  EXPECT_THAT(run.error(), HasSubstr("a program that it started was killed by SIGSEGV\n    SIGSEGV: it accessed invalid memory"));
}

TEST_F(GannetRunFault, ExplainsGannetsOwnExitCodes) {
  const std::pair<int, const char*> cases[] = {{2, "a user's mistake"},
                                               {3, "the environment's fault"},
                                               {70, "a defect"},
                                               {71, "a plugin's fault"},
                                               {127, "was not found"}};
  for (const auto& [code, text] : cases) {
    Launched run(LaunchOptions{.command = {"sh", "-c", "exit " + std::to_string(code)}});
    EXPECT_EQ(run.finish(), code);
    EXPECT_THAT(run.error(), HasSubstr("\n    exit code " + std::to_string(code) + ": "));
    EXPECT_THAT(run.error(), HasSubstr(text));
  }
  EXPECT_EQ(gannet::launch::meaning_of_exit_code(7), "");  // the program's own
}

TEST_F(GannetRunFault, SaysThatTheKernelKilledItForWantOfMemory) {
  std::ofstream(at("self")) << "0::/\n";
  std::ofstream(at("memory.events")) << "oom_kill 0\n";
  std::ofstream(at("memory.max")) << "268435456\n";
  Launched run(LaunchOptions{
      .procs = 2,
      .command = {"sh", "-c",
                  "if [ $RANK = 1 ]; then echo oom_kill 1 > " + at("memory.events") + "; kill -9 $$; fi; exec sleep 60"},
      .cgroup_root = folder_.string(),
      .cgroup_membership = at("self")});
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
  EXPECT_THAT(run.error(), HasSubstr("SIGKILL: killed by the kernel, out of memory: oom_kill in " + at("memory.events") +
                                     " went from 0 to 1; the cgroup's limit is 256.0 MiB\n"));
}

TEST_F(GannetRunFault, StartsAgainUntilItGoesWell) {
  Launched run({"--num_procs", "2", "--max-restarts", "3", "sh", "-c",
                "echo start $GANNET_RESTART $MASTER_PORT; if [ $GANNET_RESTART -lt 2 ]; then "
                "if [ $RANK = 1 ]; then sleep 0.1; kill -9 $$; fi; exec sleep 60; fi"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.error(), HasSubstr("restart 1 of 3, because rank 1 was killed by SIGKILL (Killed)\n"));
  EXPECT_THAT(run.error(), HasSubstr("restart 2 of 3, because rank 1 was killed by SIGKILL (Killed)\n"));
  EXPECT_THAT(run.error(), Not(HasSubstr("restart 3")));
  // Both ranks of a start meet at one port, and each start at one of its own.
  std::string ports[3];
  std::stringstream lines(run.output());
  for (std::string line; std::getline(lines, line);) {
    std::stringstream words(line);
    std::string rank, start, port;
    size_t restart = 9;
    words >> rank >> start >> restart >> port;
    ASSERT_LT(restart, 3u) << line;
    if (ports[restart].empty()) ports[restart] = port;
    EXPECT_EQ(ports[restart], port);
  }
  EXPECT_NE(ports[0], ports[1]);
  EXPECT_NE(ports[1], ports[2]);
}

TEST_F(GannetRunFault, GivesUpWhenTheRestartsAreUsedUp) {
  Launched run(LaunchOptions{.max_restarts = 2, .command = {"sh", "-c", "echo start; exit 3"}});
  EXPECT_EQ(run.finish(), 3);
  EXPECT_EQ(count_of(run.output(), "start"), 3u);
  EXPECT_THAT(run.error(), HasSubstr("no restart: all 2 are used up\n"));
}

TEST_F(GannetRunFault, PausesBetweenRestartsThatFailAtOnce) {
  const auto start = Clock::now();
  Launched run(LaunchOptions{.max_restarts = 4, .restart_pause_seconds = 0.1, .command = {"sh", "-c", "echo start; exit 3"}});
  EXPECT_EQ(run.finish(), 3);
  EXPECT_EQ(count_of(run.output(), "start"), 5u);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(700));  // 0, 0.1, 0.2 and 0.4 s
  EXPECT_THAT(run.error(),
              HasSubstr("restart 4 of 4, because rank 0 ended with exit code 3\n[gannet run] waiting 0.4 s first, as "
                        "the ranks fail soon after their start\n"));
  EXPECT_EQ(count_of(run.error(), "waiting "), 3u);
}

TEST_F(GannetRunFault, AStopEndsThePause) {
  Launched run(LaunchOptions{
      .max_restarts = 9, .restart_pause_seconds = 50, .command = {"sh", "-c", "echo >> " + at("starts") + "; exit 3"}});
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (content(at("starts")) != "\n\n" && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(run.pid(), SIGTERM);
  EXPECT_LT(run.ends_within(20), 3);
  EXPECT_EQ(run.finish(), 3);
  EXPECT_THAT(run.error(), HasSubstr("SIGTERM came: no restart\n"));
}

TEST_F(GannetRunFault, DoesNotRepeatAUsersMistake) {
  for (const int code : {2, 126, 127}) {
    Launched run(LaunchOptions{.max_restarts = 5, .command = {"sh", "-c", "echo start; exit " + std::to_string(code)}});
    EXPECT_EQ(run.finish(), code);
    EXPECT_EQ(count_of(run.output(), "start"), 1u);
    EXPECT_THAT(run.error(),
                HasSubstr("no restart: a program that ends with exit code " + std::to_string(code) + " would do so again"));
  }
  Launched missing({"--num_procs", "1", "--max-restarts", "5", "./no-such-program"});
  EXPECT_EQ(missing.finish(), 127);
}

TEST_F(GannetRunFault, DoesNotStartAgainAfterAStop) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    Launched run(LaunchOptions{
        .procs = 2, .max_restarts = 5, .command = {"sh", "-c", "echo $$ > " + at("ready") + "$RANK; exec sleep 60"}});
    pids_in({at("ready0"), at("ready1")});
    kill(run.pid(), number);
    EXPECT_EQ(run.finish(), 128 + number);
    EXPECT_THAT(run.error(), Not(HasSubstr("restart")));
    std::filesystem::remove(at("ready0"));
    std::filesystem::remove(at("ready1"));
  }
}

TEST_F(GannetRunFault, AnEarlierSignalThatWasHandledDoesNotExcuseALaterFailure) {
  Launched run(LaunchOptions{
      .procs = 2,
      .max_restarts = 1,
      .command = {"sh", "-c",
                  "trap 'echo saved >> " + at("saved") + "$RANK' USR1; echo $$ > " + at("ready") +
                      "$RANK; "
                      "while [ ! -e " +
                      at("saved") + "$RANK ]; do sleep 0.05; done; [ $GANNET_RESTART = 1 ] && exit 0; sleep 0.2; exit 9"}});
  pids_in({at("ready0"), at("ready1")});
  kill(run.pid(), SIGUSR1);
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.error(), HasSubstr("restart 1 of 1, because rank "));
}

}  // namespace
