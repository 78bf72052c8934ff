// One stop that comes as several signals, and the two ways of a stop that no signal asks for.
#include <gannet/stop.h>
#include <gmock/gmock.h>

#include "launch/descendants.h"
#include "launch/launched.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void expect_saved(Launched& run) {
  EXPECT_EQ(run.finish(), gannet::kStoppedExitCode) << run.error();
  EXPECT_THAT(run.error(), Not(HasSubstr("killing")));
}

TEST_F(GannetRun, SeveralSignalsOfOneStopAreOne) {
  // `timeout` sends SIGTERM to its child and to the group; systemd may follow with SIGHUP; a closing terminal sends two SIGHUP.
  for (const auto& numbers : std::vector<std::vector<int>>{{SIGTERM, SIGTERM}, {SIGTERM, SIGHUP}, {SIGHUP, SIGHUP}}) {
    Launched run({"--num_procs", "2", "sh", "-c",
                  "trap 'sleep 1; exit 85' TERM HUP; echo $$ > " + at("ready") + "$RANK; while :; do sleep 0.05; done"});
    pids_in({at("ready0"), at("ready1")});
    for (const int number : numbers) kill(run.pid(), number), std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    if (numbers[1] == SIGHUP) kill(run.pid(), SIGHUP);  // never a second stop, however late
    expect_saved(run);
    for (const char* file : {"ready0", "ready1"}) std::filesystem::remove(at(file));
  }
}

class HereByAgent : public GannetRun {
 protected:
  // A head, and an agent of this machine.
  std::vector<std::string> command(const std::string& seconds_to_save) const {
    std::ofstream(at("hosts")) << "localhost slots=2\n";
    return {"--hostfile", at("hosts"), "--grace-seconds", "20", kStopsWhenAsked, folder_.string(), seconds_to_save};
  }
  // All processes of `gannet`: head and agent are two each.
  static std::vector<pid_t> launchers_of(pid_t head) {
    std::vector<pid_t> found = {head};
    for (const pid_t pid : gannet::launch::descendants_of(head, {}))
      if (std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe").filename() == "gannet") found.push_back(pid);
    return found;
  }
};

TEST_F(HereByAgent, ASignalToAllLaunchersIsOneSignal) {
  Launched run(command("1"));
  pids_in({at("ready0"), at("ready1")});
  const auto launchers = launchers_of(run.pid());
  EXPECT_EQ(launchers.size(), 4u);
  for (const pid_t pid : launchers) kill(pid, SIGTERM);
  expect_saved(run);
}

TEST_F(HereByAgent, RanksThatSaveOutliveTheirHead) {
  Launched run(command("2"));
  const auto ranks = pids_in({at("ready0"), at("ready1")});
  const auto launchers = launchers_of(run.pid());
  ASSERT_EQ(launchers.size(), 4u);
  kill(run.pid(), SIGTERM);
  pids_in({at("saving0"), at("saving1")});
  // Both processes of the head at once: neither may end what is below the other. The front process is killed last: its end leaves
  // the launcher's process group orphaned, and the kernel continues a stopped process of such a group.
  const pid_t front = launchers[0], launcher = children_of(front).at(0);
  for (const pid_t pid : {front, launcher}) kill(pid, SIGSTOP);
  for (const pid_t pid : {launcher, front}) kill(pid, SIGKILL);
  run.finish();
  expect_gone(ranks, 10);
  EXPECT_EQ(content(at("saved0")), content(at("saved1")));
  EXPECT_THAT(content(at("saved0")), Not(""));
}

}  // namespace
