#include "control/environment.h"

#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using gannet::Error;
using gannet::ErrorCode;
using gannet::control::discover;
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
  EXPECT_EQ(found.master_port, 29500);
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
  const Variables task = {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};
  EXPECT_THAT(refusal(task), HasSubstr("Slurm started this as rank 3 of 8"));
  EXPECT_EQ(discover(with(task, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1234"}}), {}).rank, 3u);
  EXPECT_EQ(discover({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}}, {}).world_size, 1u);
  // A step of one task in a job of eight.
  EXPECT_EQ(discover({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}}, {})
                .world_size,
            1u);
}

TEST(Environment, TorchrunsOwnStoreIsUsed) {
  const auto found =
      discover(with(kComplete, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}), {});
  EXPECT_TRUE(found.agent_store);
  EXPECT_EQ(found.attempt, "2");
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
