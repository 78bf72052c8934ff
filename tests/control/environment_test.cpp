#include "control/environment.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

using gannet::Error;
using gannet::ErrorCode;
using gannet::control::claim_of_several;
using gannet::control::discover;
using gannet::control::tasks_without_srun;
using gannet::control::time_out;
using gannet::control::Variables;
using testing::HasSubstr;

const Variables kComplete = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    variables.erase(name);
    if (!value.empty()) variables[name] = value;
  }
  return variables;
}

std::string refusal(const Variables& variables, const gannet::control::Overrides& overrides = {}) {
  try {
    discover(variables, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(Environment, NothingSetIsAWorldOfOne) {
  const auto found = discover({}, {});
  EXPECT_EQ(found.rank, 0u);
  EXPECT_EQ(found.world_size, 1u);
  EXPECT_EQ(found.discovered, "RANK is not set: one process");
}

TEST(Environment, TheFiveVariablesAreTaken) {
  const auto found = discover(kComplete, {});
  EXPECT_EQ(found.rank, 1u);
  EXPECT_EQ(found.world_size, 4u);
  EXPECT_EQ(found.local_rank, 1u);
  EXPECT_EQ(found.master_addr, "10.0.0.1");
  EXPECT_EQ(found.master_port, 29500);
  EXPECT_EQ(found.discovered, "RANK and WORLD_SIZE of the environment");
}

TEST(Environment, AnAddressAloneDoesNotMakeRanks) {
  EXPECT_EQ(discover({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}}, {}).world_size, 1u);
}

TEST(Environment, AWorldOfOneNeedsNoAddress) { EXPECT_EQ(discover({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {}).world_size, 1u); }

TEST(Environment, ALocalRankThatIsNotSetIsLeftToTheRendezvous) {
  EXPECT_FALSE(discover(with(kComplete, {{"LOCAL_RANK", ""}}), {}).local_rank.has_value());
}

TEST(Environment, EachMissingVariableIsNamed) {
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", ""}})), HasSubstr("RANK is not set, though WORLD_SIZE is"));
  EXPECT_THAT(refusal(with(kComplete, {{"WORLD_SIZE", ""}})), HasSubstr("WORLD_SIZE is not set, though RANK is"));
  EXPECT_THAT(refusal({{"LOCAL_RANK", "0"}}), HasSubstr("RANK and WORLD_SIZE are not set, though LOCAL_RANK is"));
  EXPECT_THAT(refusal(with(kComplete, {{"MASTER_PORT", ""}})), HasSubstr("but MASTER_PORT of the environment is not set"));
  EXPECT_THAT(refusal(with(kComplete, {{"MASTER_PORT", ""}, {"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR, MASTER_PORT"));
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", ""}})), HasSubstr("gannet run --num_procs N PROGRAM"));
}

TEST(Environment, ContradictionsAndNonsenseAreRefused) {
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", "4"}})), HasSubstr("RANK is 4 and WORLD_SIZE is 4"));
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", "one"}})), HasSubstr("RANK is 'one', which is not a whole number"));
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", "-1"}})), HasSubstr("RANK is '-1'"));
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", "1x"}})), HasSubstr("RANK is '1x'"));
  EXPECT_THAT(refusal(with(kComplete, {{"RANK", "0"}, {"WORLD_SIZE", "0"}, {"LOCAL_RANK", ""}})), HasSubstr("WORLD_SIZE is 0"));
  EXPECT_THAT(refusal(with(kComplete, {{"LOCAL_RANK", "3"}})), HasSubstr("the local rank is 3 and RANK is 1"));
  EXPECT_THAT(refusal(with(kComplete, {{"LOCAL_WORLD_SIZE", "1"}})), HasSubstr("LOCAL_RANK is 1 and LOCAL_WORLD_SIZE is 1"));
  EXPECT_THAT(refusal(with(kComplete, {{"MASTER_PORT", "0"}})), HasSubstr("MASTER_PORT is 0"));
  EXPECT_THAT(refusal(with(kComplete, {{"MASTER_PORT", "70000"}})), HasSubstr("MASTER_PORT is '70000'"));
}

TEST(Environment, OpenMpiOnOneMachineNeedsNothingElse) {
  const auto found = discover({{"OMPI_COMM_WORLD_RANK", "2"},
                               {"OMPI_COMM_WORLD_SIZE", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
                              {});
  EXPECT_EQ(found.rank, 2u);
  EXPECT_EQ(found.world_size, 3u);
  EXPECT_EQ(found.local_rank, 2u);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  EXPECT_EQ(found.discovered, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE of Open MPI");
}

TEST(Environment, OpenMpiOnSeveralMachinesNeedsTheAddressOfRankZero) {
  const Variables two_of_four = {{"OMPI_COMM_WORLD_RANK", "2"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_THAT(refusal(two_of_four), HasSubstr("Open MPI started this as rank 2 of 4, but MASTER_ADDR, MASTER_PORT"));
  EXPECT_EQ(discover(with(two_of_four, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1234"}}), {}).master_addr, "node0");
}

TEST(Environment, RankGoesBeforeWhatMpiSays) {
  EXPECT_EQ(discover(with(kComplete, {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}}), {}).world_size, 4u);
}

TEST(Environment, MpichIsKnownByItsPmiVariables) {
  const auto found = discover({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, {});
  EXPECT_EQ(found.rank, 1u);
  EXPECT_EQ(found.local_rank, 1u);
}

TEST(Environment, SlurmNeedsAnAddressUnlessItStartedOneTask) {
  const Variables task = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};
  EXPECT_THAT(refusal(task), HasSubstr("Slurm started this as rank 3 of 8"));
  EXPECT_EQ(discover(with(task, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1234"}}), {}).rank, 3u);
  EXPECT_EQ(discover(with(task, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}}), {}).world_size, 1u);
  // A step of one task in a job of eight.
  EXPECT_EQ(discover(with(task, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}}), {}).world_size,
            1u);
}

TEST(Environment, AStepOnSeveralNodesMeetsOnTheFirstOfThem) {
  const Variables step = {{"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_NODELIST", "gpu[03-04]"}};
  const auto found = discover(step, {});
  EXPECT_EQ(found.rank, 3u);
  EXPECT_EQ(found.master_addr, "gpu03");
  EXPECT_EQ(found.master_port, discover(with(step, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}), {}).master_port);
  EXPECT_NE(found.master_port, discover(with(step, {{"SLURM_JOB_ID", "8"}}), {}).master_port);
  EXPECT_EQ(discover(with(step, {{"MASTER_PORT", "77"}}), {}).master_port, 77);
  EXPECT_EQ(discover(with(step, {{"MASTER_ADDR", "head"}}), {}).master_addr, "head");
}

TEST(Environment, ABatchScriptOfSlurmIsNoTask) {
  // The variables that sbatch gives its script: the job's numbers, and no step.
  const Variables script = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}, {"SLURM_LOCALID", "0"}};
  EXPECT_EQ(discover(script, {}).world_size, 1u);
  EXPECT_FALSE(claim_of_several(script));
  EXPECT_EQ(tasks_without_srun(script), 8u);
  EXPECT_EQ(tasks_without_srun(with(script, {{"SLURM_STEP_ID", "0"}})), 0u);
  EXPECT_EQ(tasks_without_srun(with(script, {{"SLURM_NTASKS", "1"}})), 0u);
}

TEST(Environment, AStepOnOneNodeMeetsAtAPortOfItsOwn) {
  const auto step = [](const char* id) {
    return discover({{"SLURM_JOB_ID", "7"},
                     {"SLURM_STEP_ID", id},
                     {"SLURM_PROCID", "1"},
                     {"SLURM_STEP_NUM_TASKS", "2"},
                     {"SLURM_STEP_NUM_NODES", "1"},
                     {"SLURM_LOCALID", "1"}},
                    {});
  };
  EXPECT_EQ(step("0").world_size, 2u);
  EXPECT_EQ(step("0").master_addr, "127.0.0.1");
  EXPECT_GE(step("0").master_port, 20'000);
  EXPECT_EQ(step("0").master_port, step("0").master_port);
  EXPECT_NE(step("0").master_port, step("1").master_port);
  EXPECT_NE(step("0").job, step("1").job);
}

// Each launcher: what it sets for rank 1 of 2, and the word by which it is known.
const std::pair<Variables, const char*> kOneOfTwo[] = {
    {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}}, "Open MPI"},
    {{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}}, "MVAPICH"},
    {{{"MVP_COMM_WORLD_RANK", "1"}, {"MVP_COMM_WORLD_SIZE", "2"}}, "MVAPICH"},
    {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "MPICH"},
    {{{"PALS_APID", "x"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_LOCAL_RANK", "0"}}, "Cray's PALS"},
    {{{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_LOCAL_ID", "0"}}, "Flux"},
    {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, "Slurm"},
    {{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}}, "Kubeflow"},
};

TEST(Environment, EveryLauncherIsJoinedWithAnAddressAndRefusedWithout) {
  for (const auto& [variables, name] : kOneOfTwo) {
    EXPECT_THAT(refusal(variables), HasSubstr(std::string(name))) << name;
    EXPECT_THAT(refusal(variables), HasSubstr("started this as rank 1 of 2, but MASTER_ADDR, MASTER_PORT")) << name;
    const auto found = discover(with(variables, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1234"}}), {});
    EXPECT_EQ(found.rank, 1u) << name;
    EXPECT_EQ(found.world_size, 2u) << name;
    EXPECT_EQ(found.master_addr, "node0") << name;
  }
}

TEST(Environment, ALauncherThatSaysNoSizeIsRefused) {
  EXPECT_THAT(refusal({{"PMIX_RANK", "0"}}),
              HasSubstr("PMIx started this as rank 0 (PMIX_RANK), and this process cannot join the "
                        "others: no variable says how many they are"));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "1"}}), HasSubstr("An indexed Kubernetes job started this as rank 1"));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "1"}}), HasSubstr("to train alone: env -u JOB_COMPLETION_INDEX PROGRAM"));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr("no variable says how many they are"));
  EXPECT_THAT(refusal({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}), HasSubstr("Slurm started this as rank 1"));
  // An answer from elsewhere is taken: RANK and WORLD_SIZE, or a launcher that knows.
  EXPECT_EQ(discover({{"JOB_COMPLETION_INDEX", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}, {}).world_size, 1u);
  EXPECT_EQ(discover({{"JOB_COMPLETION_INDEX", "0"}, {"PET_NNODES", "1"}}, {}).world_size, 1u);
  EXPECT_EQ(discover({{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, {}).world_size, 1u);
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), HasSubstr("Open MPI started this as one process of 2"));
}

// As notebooks set them before DeepSpeed.
TEST(Environment, TheFiveVariablesOfANotebookAreOneRank) {
  const auto found = discover(
      {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "9994"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "1"}}, {});
  EXPECT_EQ(found.rank, 0u);
  EXPECT_EQ(found.world_size, 1u);
}

TEST(Environment, WhatTorchrunIsToStartIsNotTrainedAlone) {
  const Variables node = {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "head"}, {"PET_MASTER_PORT", "29400"}};
  const auto found = discover(with(node, {{"PET_NPROC_PER_NODE", "1"}}), {});
  EXPECT_EQ(found.rank, 1u);
  EXPECT_EQ(found.world_size, 2u);
  EXPECT_EQ(found.master_addr, "head");
  EXPECT_EQ(found.master_port, 29400);
  EXPECT_THAT(refusal(with(node, {{"PET_NPROC_PER_NODE", "4"}})), HasSubstr("PET_NPROC_PER_NODE=4 leaves it to torchrun"));
  EXPECT_THAT(refusal(with(node, {{"PET_NPROC_PER_NODE", "auto"}})), HasSubstr("PET_NPROC_PER_NODE=auto leaves it to torchrun"));
  EXPECT_THAT(refusal(with(node, {{"PET_NNODES", "1:4"}})),
              HasSubstr("PET_NNODES=1:4 is a number of nodes that torchrun changes"));
  EXPECT_THAT(refusal(with(node, {{"PET_NODE_RANK", ""}})), HasSubstr("PET_NODE_RANK is not set"));
  EXPECT_THAT(refusal({{"PET_NPROC_PER_NODE", "4"}}), HasSubstr("for torchrun, expects 4 processes (PET_NPROC_PER_NODE)"));
  EXPECT_EQ(discover({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "auto"}}, {}).world_size, 1u);
}

TEST(Environment, AWorldOfOneIsRefusedWhereALauncherStartedSeveral) {
  for (const auto& [variables, name] : kOneOfTwo) {
    EXPECT_THAT(refusal(with(variables, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
                HasSubstr("RANK and WORLD_SIZE say that this process is alone, but " + std::string(name)));
    EXPECT_EQ(discover(variables, {.rank = 0, .world_size = 1}).world_size, 1u);  // the program's own word
  }
  // mpirun -n 1 in each of two tasks.
  EXPECT_THAT(refusal({{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"OMPI_COMM_WORLD_RANK", "0"},
                       {"OMPI_COMM_WORLD_SIZE", "1"}}),
              HasSubstr("Slurm started this as rank 1 of 2"));
}

TEST(Environment, OneOfSeveralIsKnownForALauncherToo) {
  for (const auto& [variables, name] : kOneOfTwo) {
    ASSERT_TRUE(claim_of_several(variables)) << name;
    EXPECT_EQ(claim_of_several(variables)->size, 2u) << name;
  }
  EXPECT_EQ(claim_of_several(kComplete)->text(), "A launcher started this as rank 1 of 4 (RANK, WORLD_SIZE)");
  EXPECT_FALSE(claim_of_several({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(claim_of_several({{"PET_NPROC_PER_NODE", "4"}}));  // it may be the one to start them
  EXPECT_TRUE(claim_of_several({{"JOB_COMPLETION_INDEX", "0"}}));
  EXPECT_TRUE(claim_of_several({{"PET_NNODES", "1:4"}}));
}

TEST(Environment, TwoJobsOfOneMachineDoNotShareAPort) {
  const auto rank_of = [](const std::string& process) {
    return discover({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, {},
                    [&](const std::string& variable) { return variable == "PMI_RANK" ? process : ""; });
  };
  EXPECT_NE(rank_of("100 5").master_port, rank_of("101 5").master_port);
  EXPECT_EQ(rank_of("100 5").master_port, rank_of("100 5").master_port);
  EXPECT_EQ(rank_of("100 5").job, "100 5");
  EXPECT_EQ(rank_of("").master_port, 29500);  // where nothing tells the job
  const auto named = [](const std::string& job) {
    return discover({{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"PMIX_NAMESPACE", job}},
                    {});
  };
  EXPECT_NE(named("prterun-a-1@1").master_port, named("prterun-a-2@1").master_port);
}

TEST(Environment, TheLaunchersProcessIsTheNearestWithoutItsVariable) {
  // This test's own parent has no such variable, and a shell between that has it is passed over.
  const std::string mine = gannet::control::launcher_process("GANNET_TEST_NO_SUCH_VARIABLE");
  EXPECT_EQ(mine.substr(0, mine.find(' ')), std::to_string(getppid()));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t shell = fork();
  if (shell == 0) {
    dup2(ends[1], 1);
    setenv("GANNET_TEST_RANK", "1", 1);
    setenv("GANNET_TEST_PRINT", "1", 1);
    const std::string self = "'/proc/" + std::to_string(getppid()) + "/exe' --gtest_filter=Environment.PrintsItsLauncher; true";
    execl("/bin/sh", "sh", "-c", self.c_str(), nullptr);
    _exit(99);
  }
  close(ends[1]);
  std::string said;
  char part[4096];
  for (ssize_t count; (count = read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<size_t>(count));
  close(ends[0]);
  waitpid(shell, nullptr, 0);
  EXPECT_THAT(said, HasSubstr("launcher " + std::to_string(getpid()) + " "));
}
TEST(Environment, PrintsItsLauncher) {
  if (!getenv("GANNET_TEST_PRINT")) GTEST_SKIP() << "a part of TheLaunchersProcessIsTheNearestWithoutItsVariable";
  printf("launcher %s\n", gannet::control::launcher_process("GANNET_TEST_RANK").c_str());
}

TEST(Environment, TorchrunsOwnStoreIsUsed) {
  const auto found =
      discover(with(kComplete, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}), {});
  EXPECT_TRUE(found.agent_store);
  EXPECT_FALSE(discover(kComplete, {}).agent_store);
}

TEST(Environment, InitMethodGivesTheAddress) {
  const auto found = discover({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {.init_method = "tcp://[fe80::1]:1234"});
  EXPECT_EQ(found.master_addr, "fe80::1");
  EXPECT_EQ(found.master_port, 1234);
  EXPECT_THAT(refusal(kComplete, {.init_method = "file:///tmp/x"}), HasSubstr("init_method is 'file:///tmp/x'"));
  EXPECT_THAT(refusal(kComplete, {.init_method = "tcp://host"}), HasSubstr("names no host and port"));
  EXPECT_THAT(refusal(kComplete, {.init_method = "tcp://host:99999"}), HasSubstr("'99999'"));
  EXPECT_EQ(discover(kComplete, {.init_method = "env://"}).master_addr, "10.0.0.1");
}

TEST(Environment, TheCallGoesBeforeTheVariables) {
  const auto found = discover(kComplete, {.rank = 0, .world_size = 2});
  EXPECT_EQ(found.rank, 0u);
  EXPECT_EQ(found.world_size, 2u);
  EXPECT_EQ(found.discovered, "the call of init_distributed");
  EXPECT_THAT(refusal({}, {.rank = 0}), HasSubstr("WORLD_SIZE is not set, though the call of init_distributed gives the other"));
  EXPECT_THAT(refusal({}, {.rank = -1, .world_size = 2}), HasSubstr("RANK is '-1'"));
}

TEST(TimeOut, IsTheCallsOrDeepSpeedsOrTenMinutes) {
  using std::chrono::milliseconds;
  EXPECT_EQ(time_out({}, {}), milliseconds(600'000));
  EXPECT_EQ(time_out({{"DEEPSPEED_TIMEOUT", "2"}}, {}), milliseconds(120'000));
  EXPECT_EQ(time_out({{"DEEPSPEED_TIMEOUT", "2"}}, 1.5), milliseconds(1'500));
  EXPECT_THROW(time_out({{"DEEPSPEED_TIMEOUT", "soon"}}, {}), Error);
  EXPECT_THROW(time_out({{"DEEPSPEED_TIMEOUT", "0"}}, {}), Error);
  EXPECT_THROW(time_out({}, 0.0), Error);
}

}  // namespace
