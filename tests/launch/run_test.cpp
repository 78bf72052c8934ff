// Processes that `gannet run` starts, how it forwards signals and output, and that nothing outlives
// it.
#include <gmock/gmock.h>

#include "control/environment.h"
#include "launch/launched.h"

namespace {

using gannet::launch::LaunchOptions;
using testing::HasSubstr;
using testing::Not;

// For a text between double quotes of a shell.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) result += (letter == '$' ? "\\" : "") + std::string(1, letter);
  return result;
}

TEST_F(GannetRun, SetsTheEnvironmentAndPrefixesEachLine) {
  Launched run({"--num_procs", "2", "--master_port", "23456", "sh", "-c",
                "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $LOCAL_SIZE $MASTER_ADDR:$MASTER_PORT; echo bad $RANK >&2; "
                "printf 'no end'"});
  EXPECT_EQ(run.finish(), 0);
  for (const char* line : {"[0] 0/2 0/2 2 127.0.0.1:23456\n", "[1] 1/2 1/2 2 127.0.0.1:23456\n", "[0] no end\n", "[1] no end\n"})
    EXPECT_THAT(run.output(), HasSubstr(line));
  EXPECT_THAT(run.error(), HasSubstr("[0] bad 0\n"));
  EXPECT_THAT(run.error(), HasSubstr("[1] bad 1\n"));
}

TEST_F(GannetRun, LinesOfManyRanksNeverMix) {
  Launched run({"--num_procs", "3", "sh", "-c",
                "i=0; while [ $i -lt 300 ]; do printf 'aaaaaaaaaa'; printf 'bbbbbbbbbb\\n'; i=$((i+1)); done"});
  EXPECT_EQ(run.finish(), 0);
  std::stringstream lines(run.output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line.substr(4), "aaaaaaaaaabbbbbbbbbb");
  EXPECT_EQ(count, 900);
}

TEST_F(GannetRun, OneRankInheritsTheStreamsAndGetsItsVariables) {
  Launched run({"--num_gpus", "1", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.output(), "rank 0 of 1\n");
}

TEST_F(GannetRun, EverythingAfterTheProgramIsItsOwn) {
  Launched run({"--num_procs", "1", "echo", "--help", "--num_procs", "x", "-h", "config", "--", "a b"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.output(), "--help --num_procs x -h config -- a b\n");
}

TEST_F(GannetRun, TwoDashesMayStandBeforeTheProgram) {
  Launched run({"--num_procs", "2", "--master_port=23457", "--bind_cores_to_rank", "--", "echo", "--help", "--", "x"});
  Launched bare({"--", "sh", "-c", "echo $RANK of $WORLD_SIZE"});
  EXPECT_EQ(run.finish(), 0) << run.error();
  EXPECT_THAT(run.output(), HasSubstr("[1] --help -- x\n"));
  EXPECT_EQ(bare.finish(), 0);
  EXPECT_EQ(bare.output(), "0 of 1\n");
  EXPECT_THAT(bare.error(), HasSubstr("one rank; --num_gpus N or --num_procs N starts more"));
}

TEST_F(GannetRun, ExitsWithTheCodeOfTheRankThatFailedAndSaysWhich) {
  Launched run({"--num_procs", "3", "sh", "-c", "if [ $RANK = 1 ]; then echo the reason >&2; exit 7; fi; exec sleep 60"});
  const auto start = Clock::now();
  EXPECT_EQ(run.finish(), 7);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  EXPECT_THAT(run.error(), HasSubstr("rank 1 of 3 ended with exit code 7; stopping the others\n"));
}

TEST_F(GannetRun, NamesTheSignalThatKilledARank) {
  Launched run({"--num_procs", "2", "sh", "-c", "if [ $RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 60"});
  EXPECT_EQ(run.finish(), 128 + SIGSEGV);
  EXPECT_THAT(run.error(), HasSubstr("rank 0 of 2 was killed by SIGSEGV (Segmentation fault)"));
}

TEST_F(GannetRun, KillsARankThatDoesNotEndOnSigterm) {
  Launched run(
      LaunchOptions{
          .procs = 2,
          .command = {"sh", "-c", "trap '' TERM; if [ $RANK = 1 ]; then sleep 0.3; exit 3; fi; while :; do sleep 0.2; done"}},
      std::chrono::seconds(1));
  const auto start = Clock::now();
  EXPECT_EQ(run.finish(), 3);
  EXPECT_GT(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
  EXPECT_THAT(run.error(), HasSubstr("killing rank 0, which did not end within 1 s of SIGTERM"));
}

TEST_F(GannetRun, ForwardsSignalsToEveryRank) {
  for (const int number : {SIGUSR1, SIGUSR2, SIGHUP, SIGINT, SIGTERM}) {
    Launched run(LaunchOptions{.procs = 2,
                               .command = {"sh", "-c",
                                           "trap 'echo got it; exit 0' USR1 USR2 HUP INT TERM; echo $$ > " + at("ready") +
                                               "$RANK; while :; do sleep 0.05; done"}});
    pids_in({at("ready0"), at("ready1")});
    kill(run.pid(), number);
    EXPECT_EQ(run.finish(), 0) << number;
    EXPECT_THAT(run.output(), HasSubstr("[0] got it\n"));
    EXPECT_THAT(run.output(), HasSubstr("[1] got it\n"));
    std::filesystem::remove(at("ready0"));
    std::filesystem::remove(at("ready1"));
  }
}

TEST_F(GannetRun, ASignalThatEndsTheRanksIsTheExitCode) {
  Launched run({"--num_procs", "2", "sh", "-c", "echo $$ > " + at("ready") + "$RANK; exec sleep 60"});
  pids_in({at("ready0"), at("ready1")});
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
  EXPECT_THAT(run.error(), Not(HasSubstr("was killed")));  // it was asked for
}

TEST_F(GannetRun, LeavesNoOrphanOfARankThatEnds) {
  Launched run({"--num_procs", "2", "sh", "-c", "sleep 60 & echo $! > " + at("child") + "$RANK; exit 0"});
  EXPECT_EQ(run.finish(), 0);
  expect_gone(pids_in({at("child0"), at("child1")}), 1);
}

TEST_F(GannetRun, LeavesNoDaemonOfARankEither) {
  Launched run({"--num_procs", "2", "sh", "-c", "setsid sleep 60 & echo $! > " + at("child") + "$RANK; sleep 0.3"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.error(), HasSubstr("ending what the ranks left behind: process "));
  EXPECT_THAT(run.error(), HasSubstr("(sleep)"));
  expect_gone(pids_in({at("child0"), at("child1")}), 0);
}

TEST_F(GannetRun, LeavesNoDaemonWhenItIsKilledItself) {
  // Its own session, its own group, its parent gone, and deaf to SIGTERM: only the mark in its environment tells.
  const std::string daemon = "trap '' TERM HUP; echo $$ > " + at("daemon") + "$RANK; while :; do sleep 0.1; done";
  Launched run({"--num_procs", "2", "sh", "-c", "(setsid sh -c \"" + escaped(daemon) + "\" &); sleep 60"});
  const auto pids = pids_in({at("daemon0"), at("daemon1")});
  ASSERT_EQ(pids.size(), 2u);
  for (const pid_t pid : pids) EXPECT_TRUE(alive(pid));
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  run.finish();
}

TEST_F(GannetRun, ALauncherInsideALauncherLeavesNothingEither) {
  Launched run({"--num_procs", "1", GANNET_BINARY_DIR "/bin/gannet", "run", "--num_procs", "2", "sh", "-c",
                "setsid sleep 60 & echo $! $$ > " + at("both") + "$RANK; sleep 60"});
  const auto pids = pids_in({at("both0"), at("both1")});
  ASSERT_EQ(pids.size(), 4u);
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  run.finish();
}

TEST_F(GannetRun, LeavesNoOrphanWhenItIsKilledItself) {
  // Rank and grandchild alike: a script that starts the real program is the usual case.
  Launched run({"--num_procs", "2", "sh", "-c", "trap '' HUP TERM; sleep 60 & echo $! $$ > " + at("both") + "$RANK; wait"});
  const auto pids = pids_in({at("both0"), at("both1")});
  ASSERT_EQ(pids.size(), 4u);
  for (const pid_t pid : pids) EXPECT_TRUE(alive(pid));
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  EXPECT_EQ(run.finish(), -SIGKILL);
}

TEST_F(GannetRun, AlsoASingleRankDiesWithIt) {
  Launched run({"--num_procs", "1", "sh", "-c", "sleep 60 & echo $! $$ > " + at("both") + "; wait"});
  const auto pids = pids_in({at("both")});
  ASSERT_EQ(pids.size(), 2u);
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  run.finish();
}

TEST_F(GannetRun, AProgramThatIsNotThereIsOneSentence) {
  Launched run({"--num_procs", "2", "./no-such-program"});
  EXPECT_EQ(run.finish(), 127);
  EXPECT_THAT(run.error(), HasSubstr("cannot start './no-such-program': there is no such file"));
  EXPECT_EQ(run.output(), "");
}

TEST_F(GannetRun, AFileThatCannotBeExecutedIsOneSentence) {
  std::ofstream(at("plain")) << "echo hello\n";
  {
    Launched run({"--num_procs", "2", at("plain")});
    EXPECT_EQ(run.finish(), 126);
    EXPECT_THAT(run.error(), HasSubstr("it is not executable"));
  }
  std::filesystem::permissions(at("plain"), std::filesystem::perms::owner_all);
  {
    Launched run({"--num_procs", "2", at("plain")});
    EXPECT_EQ(run.finish(), 126);
    EXPECT_THAT(run.error(), HasSubstr("this machine cannot execute it"));
  }
  std::ofstream(at("script")) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(at("script"), std::filesystem::perms::owner_all);
  Launched run({"--num_procs", "2", at("script")});
  EXPECT_EQ(run.finish(), 127);
  EXPECT_THAT(run.error(), HasSubstr("the interpreter or loader that it names is not"));
}

TEST_F(GannetRun, WrongOptionsAreOneSentenceEach) {
  const auto refusal = [](std::vector<std::string> arguments) {
    Launched run(std::move(arguments));
    EXPECT_EQ(run.finish(), 2);
    return run.error();
  };
  EXPECT_THAT(refusal({"--num_procs", "2"}), HasSubstr("no PROGRAM was named"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--"}), HasSubstr("no PROGRAM was named"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--max-restarts", "-1", "true"}), HasSubstr("--max-restarts"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--grace-seconds", "soon", "true"}), HasSubstr("--grace-seconds"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--bind-cores", "true"}), HasSubstr("unknown option '--bind-cores' before PROGRAM"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--num_gpus", "3", "true"}), HasSubstr("differ"));
  EXPECT_THAT(refusal({"--num_procs", "0", "true"}), HasSubstr("--num_procs"));
  EXPECT_THAT(refusal({"--num_procs", "two", "true"}), HasSubstr("--num_procs"));
  EXPECT_THAT(refusal({"--num_procs", "4000", "--bind_cores_to_rank", "true"}), HasSubstr("4000 ranks and only"));
}

TEST_F(GannetRun, OptionsOfDeepSpeedsLauncherAreKnownAndNotBuilt) {
  const std::pair<const char*, const char*> cases[] = {
      {"--venv_script", "source it here"},         {"--module", "python -m MODULE"},
      {"--launcher_args", "docs/cluster.md"},      {"--elastic_training", "--max-restarts N"},
      {"--no_local_rank", "leave the option out"},
  };
  for (const auto& [option, next_step] : cases) {
    Launched run({"--num_gpus", "2", option, "x", "true"});
    EXPECT_EQ(run.finish(), 2);
    const std::string name = std::string(option).substr(0, std::string(option).find('='));
    EXPECT_THAT(run.error(), HasSubstr("gannet run: " + name + " is an option of DeepSpeed's launcher that is not implemented"));
    EXPECT_THAT(run.error(), HasSubstr(next_step));
    EXPECT_THAT(run.error(), Not(HasSubstr("unknown")));
  }
}

// `gannet run` below a launcher, with what that launcher sets.
Launched below(const std::vector<std::pair<std::string, std::string>>& variables, std::vector<std::string> command) {
  return Launched([&] {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const auto node = gannet::launch::node_of({}, gannet::control::variables_of_this_process());
    return gannet::launch::run({.procs = 2, .node = node, .command = std::move(command)});
  });
}

TEST_F(GannetRun, SeveralLaunchersOnOneMachineAreRefused) {
  // `srun --ntasks 2 gannet run`: each would train separately, and overwrite the other's checkpoints.
  for (const char* rank : {"0", "1"}) {
    Launched run([&] {
      const std::string command = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=" + std::string(rank) +
                                  " SLURM_STEP_NUM_TASKS=2 exec " GANNET_BINARY_DIR "/bin/gannet run --num_procs 2 touch " +
                                  at("trained");
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      return 99;
    });
    EXPECT_EQ(run.finish(), 2);
    EXPECT_THAT(run.error(), HasSubstr(std::string("gannet: Slurm started this as rank ") + rank +
                                       " of 2 (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_ID), and gannet run starts all "
                                       "ranks of a machine: each of these launchers would train by itself\n"));
    EXPECT_THAT(run.error(), HasSubstr("env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS -u SLURM_STEP_ID gannet run ...)"));
  }
  EXPECT_FALSE(std::filesystem::exists(at("trained")));
}

TEST_F(GannetRun, OneLauncherAloneBelowAnotherIsNot) {
  for (const std::vector<std::pair<std::string, std::string>>& variables :
       {std::vector<std::pair<std::string, std::string>>{
            {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
        {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}},
        {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
        {{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "2"}, {"JOB_COMPLETION_INDEX", "0"}}}) {
    Launched run = below(variables, {"sh", "-c", "echo rank $RANK of $WORLD_SIZE"});
    EXPECT_EQ(run.finish(), 0) << variables[0].first;
    EXPECT_THAT(run.output(), HasSubstr("rank 1 of 2\n"));
  }
}

// Two launchers on this machine as the nodes of one run.
std::vector<std::string> as_node(int index, std::vector<std::string> rest) {
  rest.insert(rest.begin(), {"--num_nodes", "2", "--node_rank", std::to_string(index), "--master_addr=127.0.0.1", "--master_port",
                             std::to_string(gannet::launch::free_port())});
  return rest;
}

TEST_F(GannetRun, AsOneOfTwoNodesItsRanksAreThoseOfTheRun) {
  Launched first(as_node(
      0, {"--nproc_per_node", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $CROSS_RANK/$CROSS_SIZE"}));
  Launched second(as_node(1, {"--num_procs", "2", "sh", "-c",
                              "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $CROSS_RANK/$CROSS_SIZE $MASTER_ADDR"}));
  EXPECT_EQ(first.finish(), 0) << first.error();
  EXPECT_EQ(second.finish(), 0) << second.error();
  EXPECT_THAT(first.output(), HasSubstr("[1] 1/4 1/2 0/2\n"));
  EXPECT_THAT(second.output(), HasSubstr("[2] 2/4 0/2 1/2 127.0.0.1\n"));
  EXPECT_THAT(second.error(), HasSubstr("[gannet run] node 1 of 2 (--node_rank): ranks 2 to 3, which meet at 127.0.0.1:"));
}

TEST_F(GannetRun, TwoNodesStopTogetherAndOneThatLosesTheOtherNamesTheRank) {
  const auto nodes = [&](const std::string& port) {
    std::vector<std::unique_ptr<Launched>> both;
    for (const char* index : {"0", "1"})
      both.push_back(std::make_unique<Launched>(
          std::vector<std::string>{"--num_procs", "1", "--nnodes=2", "--node_rank", index, "--no_ssh", "--master_addr",
                                   "127.0.0.1", "--master_port", port, kStopsWhenAsked, folder_.string()}));
    return both;
  };
  auto stopped = nodes(std::to_string(gannet::launch::free_port()));
  pids_in({at("ready0"), at("ready1")});
  kill(stopped[1]->pid(), SIGTERM);
  for (auto& one : stopped) EXPECT_EQ(one->finish(), 85) << one->error();

  std::filesystem::remove(at("ready0"));
  std::filesystem::remove(at("ready1"));
  auto lost = nodes(std::to_string(gannet::launch::free_port()));
  const std::vector<pid_t> ranks = pids_in({at("ready0"), at("ready1")});
  kill(ranks.at(1), SIGKILL);
  EXPECT_EQ(lost[0]->finish(), 3);
  EXPECT_EQ(lost[1]->finish(), 137);
  EXPECT_THAT(lost[0]->error(), HasSubstr("rank 0 of 2"));
  EXPECT_THAT(lost[0]->error(), HasSubstr("failed first on this node: it ended with exit code 3"));
  EXPECT_THAT(lost[0]->error(), HasSubstr("rank 1 has died"));
  EXPECT_THAT(lost[1]->error(), HasSubstr("failed first, and is the cause: it was killed by SIGKILL"));
}

TEST_F(GannetRun, TwoNodesRestartTogether) {
  const std::string port = std::to_string(gannet::launch::free_port());
  std::vector<std::unique_ptr<Launched>> nodes;
  // The second node's rank dies in the first start, once both ranks have met.
  const std::string program = "[ $RANK$GANNET_RESTART = 10 ] && (until [ -s " + at("0/ready0") + " ] && [ -s " + at("0/ready1") +
                              " ]; do sleep 0.05; done; kill -9 $$) & exec " + kStopsWhenAsked + " " + folder_.string() +
                              "/$GANNET_RESTART";
  for (const char* index : {"0", "1"}) {
    std::filesystem::create_directories(at(index));
    nodes.push_back(std::make_unique<Launched>(std::vector<std::string>{"--num_procs", "1", "--nnodes=2", "--node_rank", index,
                                                                        "--master_addr", "127.0.0.1", "--master_port", port,
                                                                        "--max-restarts", "2", "sh", "-c", program}));
  }
  pids_in({at("1/ready0"), at("1/ready1")});
  kill(nodes[0]->pid(), SIGTERM);
  for (auto& one : nodes) {
    EXPECT_EQ(one->finish(), 85) << one->error();
    EXPECT_THAT(one->error(), HasSubstr("restart 1 of 2"));
  }
}

TEST_F(GannetRun, BindsEachRankToCoresOfItsOwn) {
  Launched run({"--num_procs", "1", "--bind_cores_to_rank", "sh", "-c",
                "grep Cpus_allowed_list /proc/self/status; echo threads $OMP_NUM_THREADS"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.output(), HasSubstr("threads "));
}

}  // namespace
