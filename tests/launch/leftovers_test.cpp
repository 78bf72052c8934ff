// Processes that a rank leaves behind are ended for any environment, session and name, and also if
// one of gannet run's own processes is killed.
#include <gmock/gmock.h>

#include "launch/launched.h"

namespace {

using gannet::launch::LaunchOptions;
using testing::HasSubstr;

class GannetRunLeftovers : public GannetRun {
 protected:
  // A daemon that bears no mark: its environment is empty, and its session its own.
  LaunchOptions with_unmarked_daemon(const std::string& then) const {
    std::ofstream(at("daemon")) << "trap '' TERM HUP\necho $$ > " + folder_.string() + "/pid$1\nwhile :; do sleep 0.1; done\n";
    return {.procs = 2,
            .command = {"sh", "-c",
                        "(setsid env -i sh " + at("daemon") + " $RANK &); while [ ! -s " + at("pid") +
                            "$RANK ]; do sleep 0.02; done; " + then}};
  }
  std::vector<pid_t> daemons() const { return pids_in({at("pid0"), at("pid1")}); }
};

TEST_F(GannetRunLeftovers, AnUnmarkedDaemonEndsWithTheRun) {
  Launched run(with_unmarked_daemon("exit 0"), std::chrono::seconds(1));
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.error(), HasSubstr("ending what the ranks left behind: process "));
  expect_gone(daemons(), 0);
}

TEST_F(GannetRunLeftovers, AnUnmarkedDaemonEndsWithAStop) {
  Launched run(with_unmarked_daemon("exec sleep 60"), std::chrono::seconds(1));
  const auto pids = daemons();
  ASSERT_EQ(pids.size(), 2u);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(run.pid(), SIGTERM);
  // Both daemons are deaf to SIGTERM, which they have the grace period to hear.
  kill(run.pid(), SIGTERM);
  run.finish();
  expect_gone(pids, 0);
}

TEST_F(GannetRunLeftovers, AnUnmarkedDaemonEndsWhenTheLauncherIsKilled) {
  Launched run(with_unmarked_daemon("exec sleep 60"));
  const auto pids = daemons();
  ASSERT_EQ(pids.size(), 2u);
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  EXPECT_EQ(run.finish(), -SIGKILL);
}

TEST_F(GannetRunLeftovers, AnUnmarkedDaemonEndsWhenTheProcessBehindIsKilled) {
  Launched run(with_unmarked_daemon("exec sleep 60"));
  const auto pids = daemons();
  ASSERT_EQ(pids.size(), 2u);
  const auto own = children_of(run.pid());
  ASSERT_EQ(own.size(), 1u);
  kill(own[0], SIGKILL);
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
  expect_gone(pids, 0);
}

TEST_F(GannetRunLeftovers, ChildrenOfTheShellBeforeItAreNotTheRanks) {
  Launched run([&] {
    const std::string script = "sleep 60 & echo $! > " + at("before") +
                               "; exec " GANNET_BINARY_DIR "/bin/gannet run --num_procs 2 sh -c 'exec sleep 0.3'";
    execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    return 99;
  });
  const auto pids = pids_in({at("before")});
  ASSERT_EQ(pids.size(), 1u);
  EXPECT_LT(run.ends_within(20), 20);
  EXPECT_TRUE(alive(pids[0]));
  kill(pids[0], SIGKILL);
  EXPECT_EQ(run.finish(), 0);
}

}  // namespace
