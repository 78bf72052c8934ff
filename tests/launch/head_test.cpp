// `gannet run --hostfile`: agents that a stand-in for ssh starts on this machine, and what their loss brings. The real ssh
// is in tests/cluster.

#include <gannet/error.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "launch/connection.h"
#include "launch/frames.h"
#include "launch/hosts.h"
#include "launch/node_plan.h"
#include "launched.h"

namespace {

using namespace gannet::launch;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Frames, ComeBackWholeFromAnyCuts) {
  const std::string stream = std::string(kGreeting) + framed(FrameKind::kSay, "hello") + framed(FrameKind::kBeat, "") +
                             framed(FrameKind::kOut, std::string("\0\xff\n", 3));
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameReader reader;
    std::vector<std::string> bodies;
    for (const auto& part : {stream.substr(0, cut), stream.substr(cut)}) {
      reader.add(part);
      while (auto frame = reader.next()) bodies.push_back(frame->body);
    }
    EXPECT_THAT(bodies, ElementsAre("hello", "", std::string("\0\xff\n", 3))) << cut;
  }
}

TEST(Frames, NoticeWhatIsNone) {
  for (const std::string text : {"Welcome to node b\n", "g", "gannet node 2\n"}) {
    FrameReader reader;
    reader.add(text);
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.foreign(), text == "g" ? "" : text);
  }
  FrameReader reader;
  reader.add(std::string(kGreeting) + "?????");
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.foreign(), "?????");
}

TEST(NodePlan, ComesBackWithAnyBytes) {
  std::mt19937 random(7);
  const auto any = [&] {
    std::string text;
    for (auto size = random() % 40; size > 0; --size) text += static_cast<char>(1 + random() % 255);
    return text;
  };
  for (int i = 0; i < 200; ++i) {
    NodePlan plan;
    plan.build = any();
    plan.folder = any();
    plan.options.command = {any(), any(), ""};
    plan.options.environment = {"A=" + any(), "B="};
    plan.options.slots = {0, 7};
    plan.options.node.procs_of_nodes = {1, 2, 3};
    plan.options.node.index = 2;
    const NodePlan back = node_plan_in(packed(plan));
    EXPECT_EQ(back.build, plan.build);
    EXPECT_EQ(back.folder, plan.folder);
    EXPECT_EQ(back.options.command, plan.options.command);
    EXPECT_EQ(back.options.environment, plan.options.environment);
    EXPECT_EQ(back.options.slots, plan.options.slots);
    EXPECT_EQ(back.options.first_rank(), 3u);
    EXPECT_EQ(back.options.world_size(), 6u);
  }
  const std::string body = packed(NodePlan{});
  EXPECT_THROW(node_plan_in(body.substr(0, body.size() / 2)), gannet::Error);
}

TEST(NodePlan, SendsTheEnvironmentButForTheMachines) {
  EXPECT_THAT(
      environment_to_send({"PATH=/x", "HOME=/h", "SSH_AUTH_SOCK=s", "NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=1", "HOMES=1"}),
      ElementsAre("PATH=/x", "NCCL_DEBUG=INFO", "HOMES=1"));
  EXPECT_THAT(merged_environment({"HOME=/other", "PATH=/y", "OWN=1"}, {"PATH=/x"}),
              ElementsAre("HOME=/other", "OWN=1", "PATH=/x"));
}

TEST(AgentCommand, IsOneConstantForTheRemoteShell) {
  SshOptions ssh;
  ssh.gannet = "/opt/it's here/gannet";
  EXPECT_THAT(agent_command("b", true, ssh), ElementsAre("/opt/it's here/gannet", "node"));
  const auto words = agent_command("b", false, ssh);
  EXPECT_EQ(words.front(), "ssh");
  EXPECT_EQ(words[words.size() - 2], "b");
  EXPECT_EQ(words.back(), "exec '/opt/it'\\''s here/gannet' node");
  ssh.command = {"myssh", "-q"};
  ssh.port = 2222;
  EXPECT_THAT(agent_command("b", true, ssh), ElementsAre("myssh", "-q", "-p", "2222", "b", words.back()));
}

// What OpenSSH 9.2 wrote, and bash.
TEST(WhyNoAgent, IsASentenceWithANextStep) {
  SshOptions ssh;
  ssh.gannet = "/opt/gannet";
  const auto why = [&](int code, const std::string& errors, const std::string& foreign = "") {
    return why_no_agent("b", ssh, code, errors, foreign);
  };
  EXPECT_THAT(why(255, "ssh: Could not resolve hostname b: Name or service not known\r\n"), HasSubstr("b: no such host"));
  EXPECT_THAT(why(255, "ssh: connect to host b port 22: Connection refused\r\n"), HasSubstr("b: refuses ssh"));
  EXPECT_THAT(why(255, "ssh: connect to host b port 22: Connection timed out\r\n"), HasSubstr("b: cannot be reached"));
  EXPECT_THAT(why(255, "ssh: connect to host b port 22: No route to host\r\n"), HasSubstr("b: cannot be reached"));
  EXPECT_THAT(why(255, "root@b: Permission denied (publickey,password).\r\n"),
              AllOf(HasSubstr("b: asks for a password"), HasSubstr("ssh-copy-id b")));
  EXPECT_THAT(
      why(255, "No ED25519 host key is known for b and you have requested strict checking.\r\nHost key verification failed.\r\n"),
      HasSubstr("its host key is not known"));
  EXPECT_THAT(why(127, "bash: line 1: /opt/gannet: No such file or directory\n"), HasSubstr("b: no gannet at /opt/gannet"));
  EXPECT_THAT(why(126, "bash: line 1: /opt/gannet: Permission denied\n"), HasSubstr("b: no gannet at /opt/gannet"));
  EXPECT_THAT(why(-1, "", "Welcome!\nnews"), HasSubstr("its shell writes 'Welcome!' before gannet starts"));
  EXPECT_THAT(why(9, "something odd\n"), HasSubstr("ssh ended with exit code 9 (something odd)"));
}

class GannetHosts : public GannetRun {
 protected:
  void SetUp() override {
    GannetRun::SetUp();
    // HOST COMMAND. A host whose name is that of a file below broken/ fails as the file says.
    std::ofstream(at("ssh")) << "#!/bin/sh\n[ ! -e " << at("broken") << "/$1 ] || . " << at("broken") << "/$1\necho $$ > "
                             << at("ssh.") << "$1\nshift\nexec sh -c \"$1\"\n";
    std::filesystem::permissions(at("ssh"), std::filesystem::perms::owner_all);
    std::filesystem::create_directories(at("broken"));
    setenv("GANNET_SSH", at("ssh").c_str(), 1);
    std::ofstream(at("hosts")) << "a slots=1\nb slots=2\n";
  }
  void TearDown() override {
    unsetenv("GANNET_SSH");
    GannetRun::TearDown();
  }
  Launched hosts(std::vector<std::string> words) {
    words.insert(words.begin(), {"--hostfile", at("hosts")});
    return Launched(std::move(words));
  }
  std::string script(const std::string& name, const std::string& text) {
    std::ofstream(at(name)) << "#!/bin/sh\n" << text;
    std::filesystem::permissions(at(name), std::filesystem::perms::owner_all);
    return at(name);
  }
};

TEST_F(GannetHosts, RanksFindTheirPlace) {
  auto run = hosts({script("p",
                           "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $CUDA_VISIBLE_DEVICES "
                           "$GREETING; [ -n \"$MASTER_PORT\" ]")});
  EXPECT_EQ(run.finish(), 0) << run.error();
  for (const char* line : {"[0] 0/3 0/1 0/2 0", "[1] 1/3 0/2 1/2 0,1", "[2] 2/3 1/2 1/2 0,1"})
    EXPECT_THAT(run.output(), HasSubstr(line));
}

TEST_F(GannetHosts, AnyBytesArriveUnchanged) {
  std::mt19937 random(3);
  std::string bytes;
  for (int i = 1; i < 256; ++i) bytes += static_cast<char>(i);
  std::shuffle(bytes.begin(), bytes.end(), random);
  std::string name = "p '\"$`\n";
  auto run =
      hosts({"--env", "ODD=" + bytes,
             script(name, "printf %s \"$1\" > " + at("argument.") + "$RANK; printf %s \"$ODD\" > " + at("variable.") + "$RANK"),
             bytes});
  EXPECT_EQ(run.finish(), 0) << run.error();
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_EQ(content(at(std::string("argument.") + rank)), bytes);
    EXPECT_EQ(content(at(std::string("variable.") + rank)), bytes);
  }
}

// A rank that lost another one (exit code 3) often ends before that one has.
TEST_F(GannetHosts, TheCauseIsJudgedOverAllHosts) {
  auto run = hosts({script("p", "case $RANK in 0) sleep 0.3; exit 3;; 1) sleep 0.8; echo before; kill -9 $$;; esac; sleep 60")});
  EXPECT_EQ(run.finish(), 137) << run.error();
  EXPECT_THAT(run.error(), AllOf(HasSubstr("rank 1 of 3 on "), HasSubstr("it was killed by SIGKILL"), HasSubstr("before"),
                                 HasSubstr("a: rank 0 ended with exit code 3")));
  auto alone = hosts({script("q", "[ $RANK != 0 ] || exit 3; sleep 60")});
  EXPECT_EQ(alone.finish(), 3) << alone.error();
  EXPECT_THAT(alone.error(), AllOf(HasSubstr("On the other hosts: b: rank "), HasSubstr(" was ended by gannet run")));
}

TEST_F(GannetHosts, RestartsAllHosts) {
  // Rank 2 fails once rank 0 has started: a failure elsewhere ends a rank that is about to.
  auto run = hosts({"--max-restarts", "2",
                    script("p", "echo start $GANNET_RESTART; echo > " + at("started.$RANK") +
                                    "; if [ $GANNET_RESTART = 0 ]; then [ $RANK = 2 ] || exec sleep 60; while [ ! -e " +
                                    at("started.0") + " ]; do sleep 0.02; done; exit 9; fi")});
  EXPECT_EQ(run.finish(), 0) << run.error();
  for (const char* line : {"[0] start 0", "[0] start 1", "[1] start 1", "[2] start 1"})
    EXPECT_THAT(run.output(), HasSubstr(line));
  EXPECT_THAT(run.error(), HasSubstr("restart 1 of 2, because rank 2 ended with exit code 9 (b)"));
}

TEST_F(GannetHosts, RestartsAHostWhoseConnectionIsLost) {
  auto run = hosts({"--max-restarts", "1",
                    script("p", "echo $$ > " + at("rank.$RANK.$GANNET_RESTART") + "; [ $GANNET_RESTART = 1 ] || sleep 60")});
  const auto ranks = pids_in({at("rank.0.0"), at("rank.1.0"), at("rank.2.0")});
  for (const pid_t pid : pids_in({at("ssh.b")})) kill(pid, SIGKILL);  // the stand-in has become the agent
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_THAT(run.error(), HasSubstr("the connection to b (ranks 1 to 2) was lost"));
  expect_gone(ranks, 5);
}

TEST_F(GannetHosts, NothingOutlivesTheHead) {
  for (const bool is_front : {true, false}) {
    std::filesystem::remove(at("rank.0"));
    std::filesystem::remove(at("rank.1"));
    std::filesystem::remove(at("rank.2"));
    auto run = hosts({script("p", "echo $$ > " + at("rank.$RANK") + "; sleep 60")});
    const auto ranks = pids_in({at("rank.0"), at("rank.1"), at("rank.2")});
    ASSERT_EQ(ranks.size(), 3u);
    const auto launchers = children_of(run.pid());
    kill(is_front ? run.pid() : launchers.at(0), SIGKILL);
    run.finish();
    expect_gone(ranks, 5);
  }
}

TEST_F(GannetHosts, AStoppedAgentWakesForTheEndOfItsConnection) {
  auto run = hosts({script("p", "echo $$ > " + at("rank.$RANK") + "; sleep 60")});
  const auto ranks = pids_in({at("rank.0"), at("rank.1"), at("rank.2")});
  const auto fronts = pids_in({at("ssh.b")});
  for (const pid_t front : fronts)
    for (const pid_t agent : children_of(front)) kill(agent, SIGSTOP);
  kill(run.pid(), SIGKILL);
  run.finish();
  expect_gone(ranks, 6);
  expect_gone(fronts, 6);
}

TEST_F(GannetHosts, ASignalStopsAllAndTheySave) {
  auto run =
      hosts({script("p", "trap 'echo saved; exit 85' TERM; echo $$ > " + at("rank.$RANK") + "; while :; do sleep 0.05; done")});
  pids_in({at("rank.0"), at("rank.1"), at("rank.2")});
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), 85) << run.error();
  EXPECT_THAT(run.error(), AllOf(HasSubstr("SIGTERM is forwarded to the ranks of 2 hosts"),
                                 HasSubstr("stopped by SIGTERM after saving (exit code 85)")));
  for (const char* line : {"[0] saved", "[1] saved", "[2] saved"}) EXPECT_THAT(run.output(), HasSubstr(line));
}

TEST_F(GannetHosts, AllThatFailAreToldAtOnceAndNothingStarts) {
  std::ofstream(at("hosts")) << "a slots=1\nb slots=1\nc slots=1\nd slots=1\n";
  std::ofstream(at("broken/b")) << "echo 'ssh: connect to host b port 22: Connection refused' >&2; exit 255\n";
  std::ofstream(at("broken/c")) << "echo Welcome\n";
  std::ofstream(at("broken/d")) << "cd / && exec " << GANNET_BINARY_DIR << "/bin/gannet --version\n";
  auto run = hosts({script("p", "echo started > " + at("started"))});
  EXPECT_EQ(run.finish(), 3);
  EXPECT_THAT(run.error(), AllOf(HasSubstr("3 of 4 hosts cannot take part, and no rank was started"), HasSubstr("b: refuses ssh"),
                                 HasSubstr("c: its shell writes 'Welcome'"), HasSubstr("d: its shell writes '")));
  EXPECT_FALSE(std::filesystem::exists(at("started")));
}

TEST_F(GannetHosts, AProgramThatIsNotThereIsToldBeforeAnyStart) {
  auto run = hosts({at("nothing")});
  EXPECT_EQ(run.finish(), 127);
  EXPECT_THAT(run.error(), AllOf(HasSubstr("2 of 2 hosts cannot take part"), HasSubstr("there is no such file")));
}

TEST_F(GannetHosts, WhatAPersonNamesIsSentThoughItDescribesAMachine) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  auto run = hosts({"--env", "HOME=/x", script("p", "echo $RANK $HOME ${CUDA_VISIBLE_DEVICES-unset}. $PWD; umask")});
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(run.finish(), 0) << run.error();
  const std::string folder = std::filesystem::current_path().string();
  for (const char* rank : {"0", "1", "2"}) EXPECT_THAT(run.output(), HasSubstr(std::string(rank) + " /x . " + folder)) << rank;
  auto chosen = hosts({"--env", "CUDA_VISIBLE_DEVICES=5,7", script("q", "echo $RANK:$CUDA_VISIBLE_DEVICES")});
  EXPECT_EQ(chosen.finish(), 0) << chosen.error();
  for (const char* line : {"0:5\n", "1:5,7\n", "2:5,7\n"}) EXPECT_THAT(chosen.output(), HasSubstr(line));
}

TEST_F(GannetHosts, AStopNamesTheRanksThatDidNotSave) {
  auto run = hosts({script("p", "trap 'exit 8'$RANK TERM; echo $$ > " + at("rank.$RANK") + "; while :; do sleep 0.05; done")});
  pids_in({at("rank.0"), at("rank.1"), at("rank.2")});
  kill(run.pid(), SIGTERM);
  run.finish();
  for (const char* rank : {"rank 0 ended with exit code 80", "rank 1 ended with exit code 81", "rank 2 ended with exit code 82"})
    EXPECT_THAT(run.error(), HasSubstr(rank));
}

TEST_F(GannetHosts, NohupKeepsTheRun) {
  signal(SIGHUP, SIG_IGN);
  auto run = hosts({script("p", "echo $$ > " + at("rank.$RANK") + "; sleep 1; echo done")});
  signal(SIGHUP, SIG_DFL);
  pids_in({at("rank.0"), at("rank.1"), at("rank.2")});
  kill(run.pid(), SIGHUP);
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_THAT(run.output(), HasSubstr("[2] done"));
}

// A host that is down at a restart is retried.
TEST_F(GannetHosts, AHostThatIsAwayIsTriedAgain) {
  auto run = hosts({"--max-restarts", "1",
                    script("p", "echo $$ > " + at("rank.$RANK.$GANNET_RESTART") + "; [ $GANNET_RESTART = 1 ] || sleep 60")});
  pids_in({at("rank.0.0"), at("rank.1.0"), at("rank.2.0")});
  std::ofstream(at("broken/b")) << "echo 'ssh: connect to host b port 22: No route to host' >&2; rm " << at("broken/b")
                                << "; exit 255\n";
  for (const pid_t pid : pids_in({at("ssh.b")})) kill(pid, SIGKILL);
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_THAT(run.error(), AllOf(HasSubstr("the connection to b (ranks 1 to 2) was lost"), HasSubstr("b: cannot be reached"),
                                 HasSubstr("It is tried again for 300 s")));
}

// sshd closes connections at random beyond its MaxStartups.
TEST_F(GannetHosts, AConnectionThatSshdClosesIsTriedAgain) {
  std::ofstream(at("broken/b")) << "echo 'kex_exchange_identification: Connection closed by remote host' >&2; rm "
                                << at("broken/b") << "; exit 255\n";
  auto run = hosts({script("p", "echo $RANK")});
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("[0] 0"), HasSubstr("[2] 2")));
}

TEST_F(GannetHosts, AProgramThatCannotBeExecutedIsNotStartedAgain) {
  std::ofstream(at("p")) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(at("p"), std::filesystem::perms::owner_all);
  auto run = hosts({"--max-restarts", "3", at("p")});
  EXPECT_EQ(run.finish(), 127) << run.error();
  EXPECT_THAT(run.error(), AllOf(HasSubstr("the interpreter or loader that it names is not"),
                                 HasSubstr("no restart: a program that ends with exit code 127 would do so again")));
}

// The last pause, 16 s, is longer than an agent waits for a sign of its head.
TEST_F(GannetHosts, APauseBeforeARestartKeepsTheAgents) {
  if (!std::getenv("GANNET_TEST_FULL")) GTEST_SKIP() << "takes 31 s: GANNET_TEST_FULL=1";
  auto run = hosts({"--max-restarts", "6", script("p", "[ $GANNET_RESTART = 6 ] || exit 1")});
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_THAT(run.error(), AllOf(HasSubstr("waiting 16 s first"), Not(HasSubstr("lost"))));
}

TEST_F(GannetHosts, AnEmptyNameIsNoneThatWasLeftOut) {
  Launched run({"--hostfile", "", "true"});
  EXPECT_EQ(run.finish(), 2);
  EXPECT_THAT(run.error(), HasSubstr("--hostfile has an empty value"));
  Launched equals({"--master_addr=", "false", "true"});  // without it, the parser would take `false` for the value
  EXPECT_EQ(equals.finish(), 2);
  EXPECT_THAT(equals.error(), HasSubstr("--master_addr has an empty value"));
}

TEST_F(GannetHosts, MuchOutputArrivesWhole) {
  auto run = hosts({script("p",
                           "i=0; while [ $i -lt 3000 ]; do echo line $i of $RANK; i=$((i + 1)); done; head -c 300000 /dev/zero | "
                           "tr '\\0' '\\377'; echo")});
  EXPECT_EQ(run.finish(), 0) << run.error();
  for (const char* rank : {"0", "1", "2"}) {
    size_t lines = 0;
    const std::string wanted = std::string("[") + rank + "] line ";
    for (size_t at = run.output().find(wanted); at != std::string::npos; at = run.output().find(wanted, at + 1)) ++lines;
    EXPECT_EQ(lines, 3000u);
  }
}

TEST_F(GannetHosts, DryRunPrintsThePlanAndStartsNothing) {
  auto run = hosts({"--dry-run", script("p", "echo started > " + at("started"))});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.output(), AllOf(HasSubstr("a  rank 0, slot 0\n"), HasSubstr("b  ranks 1 to 2, slots 0, 1\n")));
  EXPECT_FALSE(std::filesystem::exists(at("started")));
}

}  // namespace
